"""The tasks extension: a task is a job, with the same id.

Tools that run as jobs answer clients that support the extension with a task at once. aisp_job_status, the command line
and the resources show the same job. A task has failed only if the tool gave no answer; if the tool returned an error,
the task is completed with that error as its result.

Questions to the user are asked during the call if the protocol version allows it, else by a second call.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from aisp_mcp.envelope import Envelope
from aisp_mcp.front.mcp.parts.apps import with_view
from aisp_mcp.front.mcp.parts.base import Part, Request, run_in_thread, tool_result
from aisp_mcp.jobs import questions
from aisp_mcp.jobs.questions import Question, Reply
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job, JobState

IDENTIFIER = "io.modelcontextprotocol/tasks"
DAY_MS = 86_400_000
# Errors of jobs whose tool gave no answer.
NO_ANSWER = {"CRASHED", "INTERNAL", "LOST", "JOB_LOST", "JOB_FAILED", "NO_RESULT", "NOT_STARTED", "OUT_OF_MEMORY"}
NO_ANSWER |= {"STORE_FULL"}


class TaskParams(types.RequestParams):
    """Task to act on."""

    task_id: str = Field(alias="taskId", max_length=100)


class UpdateParams(TaskParams):
    """Replies to the task's questions, by name."""

    input_responses: dict[str, Any] = Field(alias="inputResponses", max_length=100)


class Tasks(Part):
    """Serves tasks/get, tasks/update and tasks/cancel."""

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
        return await run_in_thread(lambda: detailed(ctx.jobs.get(params.task_id, ctx.sees), ctx, request))

    async def _update(self, request: Request, params: UpdateParams) -> dict[str, Any]:
        """Store the replies; replies without a question are ignored, as the extension demands."""
        await run_in_thread(partial(_reply, params, self._checked(request, params)))
        return {}

    async def _cancel(self, request: Request, params: TaskParams) -> dict[str, Any]:
        await run_in_thread(partial(_cancel, params.task_id, self._checked(request, params)))
        return {}

    def _checked(self, request: Request, params: TaskParams) -> Context:
        """Return the caller's context. Raises MCPError for an undeclared extension or a header that does not match."""
        if not _declared(request):
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
            message = f"Declare the extension {IDENTIFIER} to follow tasks."
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, data)
        headers = getattr(request.request, "headers", None)
        if headers is not None and headers.get("mcp-name", "").strip() != params.task_id:
            raise MCPError(HEADER_MISMATCH, "The Mcp-Name header must be the request's taskId.")
        return self.caller_of(request).ctx


def follows_tasks(request: Request) -> bool:
    """True if this client supports tasks; jobs are then answered with a task."""
    return is_modern(request) and _declared(request)


def created(job_id: str, ctx: Context) -> dict[str, Any]:
    """Return the task for the call that started a job."""
    job = ctx.jobs.get(job_id)
    if job.state.terminal:
        # The job was quick, but the client learns of the end only from tasks/get.
        job = job.model_copy(update={"state": JobState.RUNNING})
    return {"resultType": "task", **_facts(job, "working", ctx)}


def detailed(job: Job, ctx: Context, request: Request) -> dict[str, Any]:
    """Return the task with its result for this client, its error, or its open questions."""
    if not job.state.terminal:
        pending = questions.open_questions(Path(job.run_dir))
        if not pending:
            return _facts(job, "working", ctx)
        requests = {name: _form(question) for name, question in pending.items()}
        return {**_facts(job, "input_required", ctx), "inputRequests": requests}
    if job.state is JobState.CANCELLED:
        return _facts(job, "cancelled", ctx)
    answer = dispatch.outcome(job, ctx)
    if answer.error is not None and answer.error.code in NO_ANSWER:
        return {**_facts(job, "failed", ctx), "error": _protocol_error(answer)}
    result = with_view(request, job.tool, tool_result(answer, ctx))
    data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {**_facts(job, "completed", ctx), "result": data}


def _declared(request: Request) -> bool:
    capabilities = request.session.client_capabilities
    return bool(capabilities and IDENTIFIER in (capabilities.extensions or {}))


def _facts(job: Job, status: str, ctx: Context) -> dict[str, Any]:
    ticket = dispatch.ticket(job, ctx.clock())
    facts = {
        "taskId": job.id,
        "status": status,
        "createdAt": _at(job.created_at),
        "lastUpdatedAt": _at(job.ended_at or job.started_at or job.created_at),
        # From creation; afterwards an ended job may be deleted.
        "ttlMs": int(ctx.settings.keep_days * DAY_MS),
        "pollIntervalMs": int(max(1.0, ticket.poll_after_s) * 1000),
    }
    message = job.reason or (ticket.progress.message if ticket.progress else None)
    return {**facts, "statusMessage": message[:300]} if message else facts


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
    fields = response if isinstance(response, dict) else {}
    action, content = fields.get("action"), fields.get("content")
    if action not in ("accept", "decline", "cancel") or not isinstance(content, dict | None):
        raise MCPError(
            types.INVALID_PARAMS, f"inputResponses.{name[:80]} is not a reply: it needs an action and its content."
        )
    return Reply(action=action, content=content)


def _cancel(task_id: str, ctx: Context) -> None:
    if not ctx.jobs.get(task_id, ctx.sees).state.terminal:
        ctx.jobs.cancel(task_id)


KEY = "confirm"
# Clients end a call after 60 s; a user who has not answered well before is treated as absent.
ANSWER_LIMIT_S = 45.0
SCHEMA: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean", "title": "Go ahead", "default": False}},
    "required": ["confirm"],
}


def can_ask(request: Request) -> bool:
    """True if this client can show a form."""
    capabilities = request.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    # Before the protocol distinguished modes, the bare capability meant forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def is_modern(request: Request) -> bool:
    """True for the protocol era without a handshake, in which a server asks by means of its answer."""
    return request.protocol_version in MODERN_PROTOCOL_VERSIONS


def given_answer(params: types.CallToolRequestParams) -> bool | None:
    """Return the user's answer to the question of an earlier call; None if there was no question."""
    response = (params.input_responses or {}).get(KEY)
    return None if response is None else _agreed(response)


def question(text: str) -> types.InputRequiredResult:
    """Return the answer that asks the question. It carries no state, because the repeated call is complete."""
    form = types.ElicitRequestFormParams(message=text, requested_schema=SCHEMA)
    return types.InputRequiredResult(input_requests={KEY: types.ElicitRequest(params=form)})


async def ask(request: Request, text: str) -> bool | None:
    """Ask over the connection of this call; None if the user does not answer in time."""
    with anyio.move_on_after(ANSWER_LIMIT_S):
        return _agreed(await request.session.elicit_form(text, SCHEMA, request.request_id))
    return None


def _agreed(response: object) -> bool:
    return (
        isinstance(response, types.ElicitResult)
        and response.action == "accept"
        and (response.content or {}).get("confirm") is True
    )
