"""The registry as an MCP server, for both eras of the protocol.

This module answers tools/list and tools/call. Everything else comes from the parts in `parts/`: `parts/base.py`
describes what a part is, and `standard_parts` lists those of the shipped server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server

from aisp_mcp import __version__
from aisp_mcp.envelope import Envelope, Progress
from aisp_mcp.errors import UnknownTool
from aisp_mcp.front.following import follow
from aisp_mcp.front.mcp.instructions import instructions
from aisp_mcp.front.mcp.parts import tasks
from aisp_mcp.front.mcp.parts.apps import Apps
from aisp_mcp.front.mcp.parts.base import (
    Caller,
    Part,
    Request,
    assemble,
    one_page,
    protocol_error,
    run_in_thread,
    tool_result,
)
from aisp_mcp.front.mcp.parts.completions import Completions
from aisp_mcp.front.mcp.parts.prompts import Prompts
from aisp_mcp.front.mcp.parts.resources import Resources
from aisp_mcp.front.mcp.parts.skills import Skills
from aisp_mcp.front.mcp.parts.tasks import Tasks
from aisp_mcp.front.mcp.schemas import describe
from aisp_mcp.jobs import tracing
from aisp_mcp.jobs.questions import ASKABLE
from aisp_mcp.server import catalog, dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool
from aisp_mcp.settings import ToolSettings

HOUR_MS = 3_600_000
# The catalogue is the same for every caller and does not change while the server runs.
STATIC = CacheHint(ttl_ms=HOUR_MS, scope="public")
CACHE_HINTS: dict[CacheableMethod, CacheHint] = {
    "tools/list": STATIC,
    "server/discover": STATIC,
    "prompts/list": STATIC,
    "resources/templates/list": STATIC,
    # Jobs belong to their caller and change; a part that serves fixed content overrides this.
    "resources/list": CacheHint(ttl_ms=1000, scope="private"),
    "resources/read": CacheHint(ttl_ms=1000, scope="private"),
}
MAX_CALLS, MAX_POLLS = 64, 8

PrincipalOf = Callable[[Request], str]
Started = types.CallToolResult | Envelope | dispatch.Pending
Reply = types.CallToolResult | types.InputRequiredResult | dict[str, Any]


class Handlers:
    """Answers tools/list and tools/call.

    active: number of running calls. served: set by the first answer. selection: which tools are listed and which may
    be called. principal_of: the principal of a request, for transports that authenticate; by default the context's.
    """

    def __init__(
        self, ctx: Context, principal_of: PrincipalOf | None = None, parts: Sequence[Part] | None = None
    ) -> None:
        self.selection = dispatch.select(ToolSettings.from_env())
        self.ctx = replace(ctx, tools=self.selection.names)
        self.parts = standard_parts() if parts is None else parts
        self._is_standard = parts is None
        self.tasks = any(isinstance(part, tasks.Tasks) for part in self.parts)
        self.active = 0
        self._principal_of = principal_of

    @cached_property
    def served(self) -> anyio.Event:
        return anyio.Event()

    @cached_property
    def _call_limit(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(MAX_CALLS)

    @cached_property
    def _poll_limit(self) -> anyio.CapacityLimiter:
        """Threads reserved for polling jobs, so that busy tools do not delay the answer of a waiting call."""
        return anyio.CapacityLimiter(MAX_POLLS)

    @cached_property
    def _listing(self) -> types.ListToolsResult:
        ready: dict[str, dict[str, Any]] = {}
        if self._is_standard and not registry.is_complete():
            ready = {tool.name: tool.entry for tool in catalog.listed_tools()}
        entries = [ready.get(name) or entry(registry.get(name), self.parts) for name in self.selection.listed]
        return types.ListToolsResult.model_validate({"tools": entries})

    def caller(self, request: Request) -> Caller:
        """Return the request's caller with a context for their principal."""
        principal = self.ctx.principal if self._principal_of is None else self._principal_of(request)
        return Caller(self.ctx.under(principal, self._job_env(request)), request)

    def _job_env(self, request: Request) -> dict[str, str]:
        """Environment for this call's jobs: the caller's trace, and a mark if the client can ask the user questions."""
        askable = self.tasks and tasks.follows_tasks(request) and tasks.can_ask(request)
        return {**tracing.carried(), **({ASKABLE: "1"} if askable else {})}

    async def list_tools(self, _: Request, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """List all tools on one page, in a fixed order."""
        one_page(params)
        listing = self._listing
        self.served.set()
        return listing

    async def call_tool(self, request: Request, params: types.CallToolRequestParams) -> Reply:
        """Run one tool. Cancelling the call does not stop a job that it started."""
        try:
            dispatch.offered(params.name, self.ctx)
        except UnknownTool as error:
            raise protocol_error(error) from None
        self.served.set()
        self.active += 1
        try:
            return await self._reply(self.caller(request), params)
        finally:
            self.active -= 1

    async def _reply(self, caller: Caller, params: types.CallToolRequestParams) -> Reply:
        answer = await self._start(caller, params, confirmed=False)
        if isinstance(answer, Envelope):
            assert answer.confirm is not None
            agreed = tasks.given_answer(params)
            if agreed is None and tasks.is_modern(caller.request):
                return tasks.question(answer.confirm)
            if agreed is None:
                agreed = await tasks.ask(caller.request, answer.confirm)
            if agreed is not None:
                answer = await self._start(caller, params, True) if agreed else dispatch.declined(answer, caller.ctx)
        if isinstance(answer, types.CallToolResult):
            return answer
        if isinstance(answer, dispatch.JobPending) and self.tasks and tasks.follows_tasks(caller.request):
            return await run_in_thread(partial(tasks.created, answer.job_id, caller.ctx))
        if not isinstance(answer, Envelope):
            report = ProgressReporter(caller.request).report
            answer = await follow(params.name, caller.ctx, answer, report, self._poll_limit)
        finish = partial(tool_result, answer, caller.ctx)
        return await anyio.to_thread.run_sync(finish, limiter=self._poll_limit)

    async def _start(self, caller: Caller, params: types.CallToolRequestParams, confirmed: bool) -> Started:
        """Start the tool. Returns an envelope only if it asks for confirmation and the caller can be asked.

        A finished answer is converted by the same thread, since each switch of threads may cost a switch interval.
        """

        def start() -> Started:
            answer = dispatch.start(params.name, params.arguments or {}, caller.ctx, confirmed)
            if not isinstance(answer, Envelope) or (answer.confirm is not None and tasks.can_ask(caller.request)):
                return answer
            return tool_result(answer, caller.ctx)

        return await anyio.to_thread.run_sync(start, abandon_on_cancel=True, limiter=self._call_limit)


def entry(tool: Tool, parts: Sequence[Part]) -> dict[str, Any]:
    """The tool's entry in tools/list of a server with these parts."""
    described = describe(tool)
    meta = {**described.get("_meta", {}), **dict(chain(*(part.tool_meta(tool).items() for part in parts)))}
    return {**described, "_meta": meta} if meta else described


class ProgressReporter:
    """Sends progress notifications with strictly increasing values, and only when something changed."""

    STEP = 0.001

    def __init__(self, request: Request) -> None:
        self._request = request
        self._done = -1.0
        self._message: str | None = None

    async def report(self, progress: Progress | None) -> None:
        if progress is None or (progress.done <= self._done and progress.message == self._message):
            return
        # A new message at the same count still needs a greater value.
        self._done = progress.done if progress.done > self._done else self._done + self.STEP
        self._message = progress.message
        await self._request.session.report_progress(self._done, progress.total, progress.message)


def build_server(handlers: Handlers) -> Server[Any]:
    """Build the server that every transport uses from the handlers and their parts."""
    server: Server[Any] = Server(
        "aisp",
        version=__version__,
        title="AI systems performance",
        instructions=instructions(handlers.selection),
        cache_hints=CACHE_HINTS,
        on_list_tools=handlers.list_tools,
    )
    assemble(server, handlers.parts, handlers.caller, handlers.call_tool)
    return server


def standard_parts() -> list[Part]:
    """Return new instances of the parts, in order: the interceptor of the first is the outermost."""
    return [Tasks(), Apps(), Skills(), Resources(), Prompts(), Completions()]
