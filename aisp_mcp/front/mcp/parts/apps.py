"""Charts inside the client: the MCP Apps extension (SEP-1865, `io.modelcontextprotocol/ui`).

Tools whose results can be drawn name one page, `ui://aisp/chart`. Only for clients that can show it, their results
carry the finished drawings under `_meta`, which models do not see; text and structured content are the same for all
clients. The page is one file that loads nothing from elsewhere: it receives the drawings by postMessage, and its
security policy allows only its own script and style sheet, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from string import Template
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult

from aisp_mcp import __version__
from aisp_mcp.front.mcp.parts.base import Caller, Part, Request
from aisp_mcp.server import registry
from aisp_mcp.server.charts import drawing
from aisp_mcp.server.registry import Tool

PAGE, MIME_TYPE = "ui://aisp/chart", "text/html;profile=mcp-app"
VIEW_KEY = "aisp/view"
WAIT_TOOL, WAIT_S = "aisp_job_wait", 45
HOUR_MS = 3_600_000
# The page loads nothing: the four lists of allowed origins stay empty.
_PAGE_META = {"ui": {"csp": {}, "prefersBorder": False}}


class Apps(Part):
    """Serves the page, names it in tools/list, and adds drawings to results."""

    identifier = "io.modelcontextprotocol/ui"

    def tool_meta(self, tool: Tool) -> dict[str, Any]:
        return {"ui": {"resourceUri": PAGE}} if tool.chart else {}

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        """Return the page, which is the same for every caller."""
        return [
            types.Resource(
                uri=PAGE,
                name="chart",
                title="Chart",
                description="Verdicts with their intervals, rooflines and timelines, drawn inside the client.",
                mime_type=MIME_TYPE,
                _meta=_PAGE_META,
            )
        ]

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | None:
        if uri != PAGE:
            return None
        pass

        content = types.TextResourceContents(uri=PAGE, mime_type=MIME_TYPE, text=view_page(), _meta=_PAGE_META)
        return types.ReadResourceResult(contents=[content], ttl_ms=HOUR_MS, cache_scope="public")

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Request, call_next: CallNext
    ) -> HandlerResult:
        """Add drawings to the tool's answer."""
        result = await call_next(ctx)
        if not isinstance(result, types.CallToolResult):
            return result
        return await anyio.to_thread.run_sync(partial(with_view, ctx, params.name, result), abandon_on_cancel=True)


def with_view(request: Request, tool: str, result: types.CallToolResult) -> types.CallToolResult:
    """Add the page's data to a tool's result, if the client can show the page."""
    if not _shows_pages(request):
        return result
    view = _view(registry.get(tool), result.structured_content)
    return result if view is None else result.model_copy(update={"meta": {**(result.meta or {}), VIEW_KEY: view}})


def _shows_pages(request: Request) -> bool:
    """True if the client declared that it can show such a page."""
    capabilities = request.session.client_capabilities
    settings = ((capabilities and capabilities.extensions) or {}).get(Apps.identifier)
    return isinstance(settings, Mapping) and MIME_TYPE in (settings.get("mimeTypes") or ())


def _view(tool: Tool, answer: Any) -> dict[str, Any] | None:
    """Return the page's data: drawings, or a message and the call that waits for an unfinished job."""
    if tool.chart is None or not isinstance(answer, Mapping):
        return None
    result = answer.get("result")
    if tool.chart == "job":
        return _job(result) if isinstance(result, Mapping) else None
    if isinstance(answer.get("job"), Mapping) and result is None and "error" not in answer:
        return _unfinished(answer["job"])
    return _drawn(tool, result)


def _drawn(tool: Tool | None, result: Any) -> dict[str, Any] | None:
    from aisp_mcp.server.charts import answers, drawing

    if tool is None or tool.chart is None or tool.chart == "job" or not isinstance(result, Mapping):
        return None
    drawings = [drawing.to_data(item) for item in answers.draw(tool.chart, result)]
    return {"drawings": drawings} if drawings else None


def _job(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the data for the answer of a single awaited job, as its own tool would show it."""
    jobs = [job for job in result.get("jobs") or [] if isinstance(job, Mapping)]
    if len(jobs) != 1:
        return {"message": ", ".join(f"{job.get('job_id')}: {job.get('state')}" for job in jobs)} if jobs else None
    answer, job = result.get("answer"), jobs[0]
    if not isinstance(answer, Mapping):
        return _unfinished(job) if job.get("ended_at") is None else {"message": _line(job)}
    error = answer.get("error")
    if isinstance(error, Mapping):
        return {"message": " ".join(str(error[part]) for part in ("message", "hint") if error.get(part))}
    tool = next((tool for tool in registry.tools() if tool.name == job.get("tool")), None)
    return _drawn(tool, answer.get("result")) or {"message": _line(job)}


def _unfinished(job: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {"job_ids": [job.get("job_id")], "timeout_s": WAIT_S}
    return {"message": _line(job), "next": {"name": WAIT_TOOL, "arguments": arguments}}


def _line(job: Mapping[str, Any]) -> str:
    """Describe a job in one sentence."""
    progress = job.get("progress") or {}
    total = f" of {progress['total']:g}" if progress.get("total") else ""
    done = f", {progress.get('done', 0):g}{total}" if progress else ""
    message = f": {progress['message']}" if progress.get("message") else ""
    return f"Job {job.get('job_id')} is {job.get('state')}{done}{message}."


def view_page() -> str:
    """Return the page as HTML, identical for every call of one version."""
    script, style = _read("view.js"), _read("view.css") + drawing.style()
    return Template(_read("view.html")).substitute(
        version=__version__, script=script, style=style, script_hash=_hash(script), style_hash=_hash(style)
    )


def _read(name: str) -> str:
    return (files("aisp_mcp.front.mcp") / "templates" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
