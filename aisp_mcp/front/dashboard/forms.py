"""Forms that start and cancel jobs. Refused unless the server was started with --allow-run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError, Refused, UsageError
from aisp_mcp.front.cli.arguments import convert
from aisp_mcp.front.dashboard import responses, site
from aisp_mcp.front.dashboard.access import Access
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.server.registry import Tool

Work = Callable[[Request, dict[str, str], Context], Envelope]

MAX_FORM = 65_536
FOREIGN = "This form was not sent by a page of this dashboard.\n"


def routes(ctx: Context, access: Access, may_run: bool) -> list[Route]:
    """POST /start/{tool} and POST /cancel."""
    return [
        Route("/start/{tool}", partial(_post, ctx=ctx, access=access, may_run=may_run, work=_start), methods=["POST"]),
        Route("/cancel", partial(_post, ctx=ctx, access=access, may_run=may_run, work=_cancel), methods=["POST"]),
    ]


async def read(request: Request, access: Access) -> dict[str, str] | None:
    """Return the fields of a form, or None if it does not carry our CSRF token."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            return None
    try:
        fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=200))
    except ValueError:
        return None
    return fields if access.is_csrf(fields.pop("csrf", "")) else None


async def _post(request: Request, ctx: Context, access: Access, may_run: bool, work: Work) -> Response:
    form = await read(request, access)
    if form is None:
        return PlainTextResponse(FOREIGN, 403)
    return await anyio.to_thread.run_sync(partial(_respond, request, form, ctx, may_run, work))


def _respond(request: Request, form: dict[str, str], ctx: Context, may_run: bool, work: Work) -> Response:
    try:
        if not may_run:
            raise Refused("READ_ONLY", "This dashboard is read-only.", "Start it with --allow-run.")
        envelope = work(request, form, ctx)
    except AispError as error:
        envelope = failure("dashboard", error, Stopwatch(ctx))
    if envelope.error is not None:
        return responses.error_response(site.PAGES["jobs"], responses.page_request(request, ctx, may_run), envelope)
    job_id = form.get("job_id") or (envelope.job.job_id if envelope.job else "")
    return RedirectResponse(f"/job?id={quote(job_id)}" if job_id else "/jobs", 303)


def _start(request: Request, form: dict[str, str], ctx: Context) -> Envelope:
    """Submit a job without waiting for it."""
    tool = dispatch.offered(request.path_params["tool"], ctx)
    if tool.job is None:
        raise UsageError("NOT_A_JOB", f"{tool.name} is not a job.", "The planners page shows its answer.")
    answer = dispatch.start(tool.name, {**arguments(tool, form), "wait_s": 0}, ctx)
    return answer if isinstance(answer, Envelope) else answer.ticket()


def _cancel(_: Request, form: dict[str, str], ctx: Context) -> Envelope:
    return dispatch.execute("aisp_job_cancel", {"job_id": form.get("job_id", "")}, ctx)


def arguments(tool: Tool, fields: dict[str, str]) -> dict[str, Any]:
    """Convert the non-empty fields to the tool's arguments; lists are split at spaces."""
    schema = dispatch.input_schema(tool).get("properties", {})
    values: dict[str, Any] = {}
    for name, part in schema.items():
        text = fields.get(name, "").strip()
        if text:
            values[name] = convert(text.split() if is_list(part) else text, part)
    return values


def is_list(part: dict[str, Any]) -> bool:
    """True for an argument that is a list."""
    return any(branch.get("type") == "array" for branch in part.get("anyOf", [part]))


def form_of(tool: Tool) -> list[dict[str, Any]]:
    """The tool's arguments as fields: name, kind (number, text, choice, switch), choices, default, about."""
    schema = dispatch.input_schema(tool)
    shared = set(registry.JobParams.model_fields)
    fields = []
    for name, part in schema.get("properties", {}).items():
        branches = part.get("anyOf", [part])
        types = {branch.get("type") for branch in branches}
        if name in shared or types & {"object"}:
            continue
        choices = next((branch["enum"] for branch in branches if "enum" in branch), None)
        kind = "choice" if choices else "switch" if types & {"boolean"} else "number" if _is_number(types) else "text"
        default = part.get("default")
        fields.append(
            {
                "name": name,
                "kind": kind,
                "choices": choices or [],
                "default": " ".join(map(str, default)) if isinstance(default, list) else default,
                "about": part.get("description", ""),
                "required": name in schema.get("required", ()),
            }
        )
    return fields


def _is_number(types: set[Any]) -> bool:
    return bool(types & {"integer", "number"}) and not types & {"string", "array"}
