"""The tasks extension over jobs: a task is a job, seen by a client that follows tasks. The task's id is the job's.

Every tool that is a job answers such a client with a task at once. The same row is what aisp_job_status, the command
line and the resources show. A task has failed only if the tool gave no answer; an error of the tool is a completed
task whose result is that error.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from aisp_mcp.envelope import Envelope
from aisp_mcp.front.mcp.parts.answers import aside, tool_result
from aisp_mcp.front.mcp.parts.apps import with_view
from aisp_mcp.front.mcp.parts.asking import is_modern
from aisp_mcp.front.mcp.parts.base import Part, Request
from aisp_mcp.jobs import questions
from aisp_mcp.jobs.question import Question, Reply
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job, JobState

IDENTIFIER = "io.modelcontextprotocol/tasks"
DAY_MS = 86_400_000
# Ends of a job in which no tool gave an answer, good or bad.
NO_ANSWER = {"CRASHED", "INTERNAL", "LOST", "JOB_LOST", "JOB_FAILED", "NO_RESULT", "NOT_STARTED", "OUT_OF_MEMORY"}
NO_ANSWER |= {"STORE_FULL"}


class TaskParams(types.RequestParams):
    """Task to act on."""

    task_id: str = Field(alias="taskId", max_length=100)


class UpdateParams(TaskParams):
    """Replies to questions of the task, by the names it gave them."""

    input_responses: dict[str, Any] = Field(alias="inputResponses", max_length=100)


class Tasks(Part):
    """tasks/get, tasks/update and tasks/cancel."""

    identifier = IDENTIFIER

    def methods(self) -> Sequence[MethodBinding]:
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [
            MethodBinding("tasks/get", TaskParams, self._get, modern),
            MethodBinding("tasks/update", UpdateParams, self._update, modern),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, modern),
        ]

    async def _get(self, request: Request, params: TaskParams) -> dict[str, Any]:
        ctx = self._checked(request, params)
        return await aside(lambda: detailed(ctx.jobs.get(params.task_id, ctx.sees), ctx, request))

    async def _update(self, request: Request, params: UpdateParams) -> dict[str, Any]:
        """Replies to questions nobody asked are let go, as the extension wants it."""
        await aside(partial(_reply, params, self._checked(request, params)))
        return {}

    async def _cancel(self, request: Request, params: TaskParams) -> dict[str, Any]:
        await aside(partial(_cancel, params.task_id, self._checked(request, params)))
        return {}

    def _checked(self, request: Request, params: TaskParams) -> Context:
        """The caller's context. Raises MCPError for a client without the extension, or a header that says otherwise."""
        if not _declared(request):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
            said = f"Declare the extension {IDENTIFIER} to follow tasks."
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, said, needed)
        headers = getattr(request.request, "headers", None)
        if headers is not None and headers.get("mcp-name", "").strip() != params.task_id:
            raise MCPError(HEADER_MISMATCH, "The Mcp-Name header must be the request's taskId.")
        return self.caller_of(request).ctx


def wanted(request: Request) -> bool:
    """True if this client follows tasks: then a job is answered with one."""
    return is_modern(request) and _declared(request)


def created(job_id: str, ctx: Context) -> dict[str, Any]:
    """The answer to the call that started a job."""
    job = ctx.jobs.get(job_id)
    if job.state.terminal:
        # It was quick; the client still learns of the end by asking.
        job = job.model_copy(update={"state": JobState.RUNNING})
    return {"resultType": "task", **_facts(job, "working", ctx)}


def detailed(job: Job, ctx: Context, request: Request) -> dict[str, Any]:
    """The task as it is now: with its result as this client sees it, its error, or the questions it waits for."""
    if not job.state.terminal:
        asked = questions.open_questions(Path(job.run_dir))
        if not asked:
            return _facts(job, "working", ctx)
        return {**_facts(job, "input_required", ctx), "inputRequests": {name: _form(q) for name, q in asked.items()}}
    if job.state is JobState.CANCELLED:
        return _facts(job, "cancelled", ctx)
    answer = dispatch.outcome(job, ctx)
    if answer.error is not None and answer.error.code in NO_ANSWER:
        return {**_facts(job, "failed", ctx), "error": _protocol_error(answer)}
    result = with_view(request, job.tool, tool_result(answer, ctx))
    dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {**_facts(job, "completed", ctx), "result": dumped}


def _declared(request: Request) -> bool:
    capabilities = request.session.client_capabilities
    return bool(capabilities and IDENTIFIER in (capabilities.extensions or {}))


def _facts(job: Job, status: str, ctx: Context) -> dict[str, Any]:
    paper = dispatch.ticket(job, ctx.clock())
    facts = {
        "taskId": job.id,
        "status": status,
        "createdAt": _at(job.created_at),
        "lastUpdatedAt": _at(job.ended_at or job.started_at or job.created_at),
        # From its creation: what may be cleaned away once it has ended.
        "ttlMs": int(ctx.settings.keep_days * DAY_MS),
        "pollIntervalMs": int(max(1.0, paper.poll_after_s) * 1000),
    }
    said = job.reason or (paper.progress.message if paper.progress else None)
    return {**facts, "statusMessage": said[:300]} if said else facts


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _form(question: Question) -> dict[str, Any]:
    schema = {"type": "object", "properties": question.fields, "required": question.required}
    params = {"mode": "form", "message": question.message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _protocol_error(answer: Envelope) -> dict[str, Any]:
    assert answer.error is not None
    return {"code": types.INTERNAL_ERROR, "message": answer.error.message, "data": dispatch.to_data(answer)["error"]}


def _reply(params: UpdateParams, ctx: Context) -> None:
    run_dir = Path(ctx.jobs.get(params.task_id, ctx.sees).run_dir)
    for name in questions.open_questions(run_dir):
        if name in params.input_responses:
            questions.reply(run_dir, name, _as_reply(name, params.input_responses[name]))


def _as_reply(name: str, response: Any) -> Reply:
    said = response if isinstance(response, dict) else {}
    action, content = said.get("action"), said.get("content")
    if action not in ("accept", "decline", "cancel") or not isinstance(content, dict | None):
        raise MCPError(types.INVALID_PARAMS, f"inputResponses.{name[:80]} is no reply: an action and its content.")
    return Reply(action=action, content=content)


def _cancel(task_id: str, ctx: Context) -> None:
    if not ctx.jobs.get(task_id, ctx.sees).state.terminal:
        ctx.jobs.cancel(task_id)
