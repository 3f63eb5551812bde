"""Jobs, their logs and files, runs and the documentation as resources."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import mcp_types as types

from aisp_mcp.assist.ask import pages
from aisp_mcp.errors import NotFound
from aisp_mcp.front.mcp.parts.base import Caller, Part
from aisp_mcp.server import dispatch
from aisp_mcp.server.jobs.tools import answer_of, brief
from aisp_mcp.store.artifacts import list_artifacts, read_artifact
from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.run import Run

SCHEME = "aisp://"
JSON, TEXT, MARKDOWN = "application/json", "text/plain", "text/markdown"
LOG_BYTES = 65_536
RECENT = 10
HOUR_MS, SECOND_MS = 3_600_000, 1000

TEMPLATES = (
    ("aisp://jobs/{job_id}", "job", "A job", JSON, "State, full answer and files of a job."),
    ("aisp://jobs/{job_id}/log", "job-log", "A job's log", TEXT, "The last 64 KiB of a job's output."),
    (
        "aisp://jobs/{job_id}/artifacts/{name}",
        "artifact",
        "A job's file",
        None,
        "A file that a job wrote, up to 4 MiB.",
    ),
    ("aisp://runs/{run_id}", "run", "A run", JSON, "Verdicts, numbers and environment of a benchmark run."),
    ("aisp://answers/{name}", "answer", "A full answer", JSON, "The full text of a shortened answer, up to 4 MiB."),
    ("aisp://docs/{page}", "page", "A documentation page", MARKDOWN, "One page of the documentation."),
)


class Resources(Part):
    """Serves aisp://jobs, aisp://runs, aisp://answers and aisp://docs to callers who may see them."""

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        """List the documentation pages and the caller's latest jobs."""
        jobs, _ = caller.ctx.store.list_jobs(limit=RECENT, principal=caller.ctx.sees)
        return [*map(_page_resource, pages.titles()), *map(_job_resource, jobs)]

    def list_templates(self) -> Sequence[types.ResourceTemplate]:
        """List all forms of URIs."""
        return [
            types.ResourceTemplate(uri_template=uri, name=name, title=title, mime_type=mime, description=description)
            for uri, name, title, mime, description in TEMPLATES
        ]

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | None:
        """Read a resource. Raises NotFound if it does not exist or is not the caller's."""
        if not uri.startswith(SCHEME):
            return None
        for pattern, read in _READERS:
            if match := pattern.fullmatch(uri.removeprefix(SCHEME)):
                return read(uri, caller, *map(unquote, match.groups()))
        return None


def _page_resource(name: str) -> types.Resource:
    return types.Resource(
        uri=f"{SCHEME}docs/{name}",
        name=name,
        title=pages.titles()[name],
        mime_type=MARKDOWN,
        size=len(pages.page(name).encode()),
    )


def _job_resource(job: Job) -> types.Resource:
    at = datetime.fromtimestamp(job.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    title = f"{job.tool} {job.state.value}, {at}"
    return types.Resource(uri=f"{SCHEME}jobs/{job.id}", name=job.id, title=title, mime_type=JSON)


def _read_job(uri: str, caller: Caller, job_id: str) -> types.ReadResourceResult:
    job = caller.ctx.jobs.get(job_id, caller.ctx.sees)
    files = list_artifacts(caller.ctx.store.run_dir(job.id))
    content = {
        "job": brief(job).model_dump(mode="json", exclude_none=True),
        "exit_code": job.exit_code,
        "answer": answer_of(job),
        "log": f"{uri}/log",
        "artifacts": [
            {"name": file.name, "bytes": file.bytes, "uri": f"{uri}/artifacts/{quote(file.name, safe='')}"}
            for file in files
        ],
    }
    return _text(uri, JSON, json.dumps(content, ensure_ascii=False))


def _read_log(uri: str, caller: Caller, job_id: str) -> types.ReadResourceResult:
    job = caller.ctx.jobs.get(job_id, caller.ctx.sees)
    return _text(uri, TEXT, caller.ctx.jobs.log_tail(job.id, LOG_BYTES), _ttl_ms(job))


def _read_file(uri: str, caller: Caller, job_id: str, name: str) -> types.ReadResourceResult:
    job = caller.ctx.jobs.get(job_id, caller.ctx.sees)
    data = read_artifact(caller.ctx.store.run_dir(job.id), name)
    mime = mimetypes.guess_type(name)[0]
    try:
        return _text(uri, mime or TEXT, data.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        body = types.BlobResourceContents(uri=uri, mime_type=mime or "application/octet-stream", blob=blob)
        return types.ReadResourceResult(contents=[body], ttl_ms=SECOND_MS, cache_scope="private")


def _read_run(uri: str, caller: Caller, run_id: str) -> types.ReadResourceResult:
    run = caller.ctx.store.run(Run, run_id, caller.ctx.sees)
    return _text(uri, JSON, run.model_dump_json(exclude_none=True), HOUR_MS)


def _read_answer(uri: str, caller: Caller, name: str) -> types.ReadResourceResult:
    folder = dispatch.kept_in(caller.ctx.settings.home, caller.ctx.principal)
    try:
        return _text(uri, JSON, read_artifact(folder, name).decode(), HOUR_MS)
    except NotFound:
        hint = "Only the latest 200 are stored: repeat the call."
        raise NotFound("NO_SUCH_ANSWER", f"No answer {name[:80]!r} is stored.", hint) from None


def _read_page(uri: str, _: Caller, name: str) -> types.ReadResourceResult:
    result = _text(uri, MARKDOWN, pages.page(name), HOUR_MS)
    return result.model_copy(update={"cache_scope": "public"})


def _text(uri: str, mime: str, text: str, ttl_ms: int = SECOND_MS) -> types.ReadResourceResult:
    body = types.TextResourceContents(uri=uri, mime_type=mime, text=text)
    return types.ReadResourceResult(contents=[body], ttl_ms=ttl_ms, cache_scope="private")


def _ttl_ms(job: Job) -> int:
    """Cache lifetime of a job's output: long once the job has ended."""
    return HOUR_MS if job.state.terminal else SECOND_MS


# Percent escapes are decoded afterwards and may yield a slash; read_artifact rejects paths outside the folder.
_READERS: tuple[tuple[re.Pattern[str], Callable[..., types.ReadResourceResult]], ...] = (
    (re.compile(r"jobs/([^/?#]+)"), _read_job),
    (re.compile(r"jobs/([^/?#]+)/log"), _read_log),
    (re.compile(r"jobs/([^/?#]+)/artifacts/([^?#]+)"), _read_file),
    (re.compile(r"runs/([^/?#]+)"), _read_run),
    (re.compile(r"answers/([^/?#]+)"), _read_answer),
    (re.compile(r"docs/([^?#]+)"), _read_page),
)
