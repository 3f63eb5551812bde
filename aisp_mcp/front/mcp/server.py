"""The registry as an MCP server: both protocol eras, no tool known by name.

This module answers tools/list and tools/call. Everything else the server offers comes from parts, one module each in
`front/parts/`: `parts/base.py` says what a part is, `parts/standard.py` lists those of the shipped server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server

from aisp_mcp import __version__
from aisp_mcp.envelope import Envelope, Progress
from aisp_mcp.errors import UnknownTool
from aisp_mcp.front.mcp.instructions import INSTRUCTIONS
from aisp_mcp.front.mcp.parts import asking, tasks
from aisp_mcp.front.mcp.parts.answers import aside, refusal, tool_result
from aisp_mcp.front.mcp.parts.assemble import assemble, one_page
from aisp_mcp.front.mcp.parts.base import Caller, Part, Request
from aisp_mcp.front.mcp.parts.standard import standard_parts
from aisp_mcp.front.mcp.schemas import describe
from aisp_mcp.jobs import tracing
from aisp_mcp.jobs.questions import ASKABLE
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool
from aisp_mcp.settings import ToolSettings

HOUR_MS = 3_600_000
# The catalogue never changes while the server runs, nor from one caller to another.
STATIC = CacheHint(ttl_ms=HOUR_MS, scope="public")
CACHE_HINTS: dict[CacheableMethod, CacheHint] = {
    "tools/list": STATIC,
    "server/discover": STATIC,
    "prompts/list": STATIC,
    "resources/templates/list": STATIC,
    # Lists and contents of jobs belong to their caller and move on: a part that serves something fixed says so.
    "resources/list": CacheHint(ttl_ms=1000, scope="private"),
    "resources/read": CacheHint(ttl_ms=1000, scope="private"),
}
CALLS_AT_ONCE, LOOKS_AT_ONCE = 64, 8

PrincipalOf = Callable[[Request], str]
Begun = types.CallToolResult | Envelope | dispatch.Pending
Reply = types.CallToolResult | types.InputRequiredResult | dict[str, Any]


class Handlers:
    """Answers tools/list and tools/call. active: calls in work; served: set by the first answer.

    selection: which tools are listed and which may be called. principal_of: who asks, where a transport knows; without
    it everyone is the context's own principal.
    """

    def __init__(
        self, ctx: Context, principal_of: PrincipalOf | None = None, parts: Sequence[Part] | None = None
    ) -> None:
        self.selection = dispatch.select(ToolSettings.from_env())
        self.ctx = replace(ctx, tools=self.selection.allowed)
        self.parts = standard_parts() if parts is None else parts
        self.tasks = any(isinstance(part, tasks.Tasks) for part in self.parts)
        self.active = 0
        self._principal_of = principal_of

    @cached_property
    def served(self) -> anyio.Event:
        return anyio.Event()

    @cached_property
    def _call_limit(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(CALLS_AT_ONCE)

    @cached_property
    def _look_limit(self) -> anyio.CapacityLimiter:
        """Looking at jobs has threads of its own: busy tools do not keep a waiting call from its answer."""
        return anyio.CapacityLimiter(LOOKS_AT_ONCE)

    @cached_property
    def _listing(self) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": [self._entry(tool) for tool in self.selection.listed]})

    def _entry(self, tool: Tool) -> dict[str, Any]:
        entry = describe(tool)
        meta = {**entry.get("_meta", {}), **{k: v for part in self.parts for k, v in part.tool_meta(tool).items()}}
        return {**entry, "_meta": meta} if meta else entry

    def caller(self, request: Request) -> Caller:
        """Caller, and the context under their name."""
        principal = self.ctx.principal if self._principal_of is None else self._principal_of(request)
        return Caller(self.ctx.under(principal, self._job_env(request)), request)

    def _job_env(self, request: Request) -> dict[str, str]:
        """Environment of this call's jobs: the caller's trace, and a mark if somebody watches who can ask the user."""
        askable = self.tasks and tasks.wanted(request) and asking.can_ask(request)
        return {**tracing.carried(), **({ASKABLE: "1"} if askable else {})}

    async def list_tools(self, _: Request, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """All tools on one page, always in the same order."""
        one_page(params)
        self.served.set()
        return self._listing

    async def call_tool(self, request: Request, params: types.CallToolRequestParams) -> Reply:
        """Run one tool. Cancelling the call lets go of it: a job that was started runs on."""
        try:
            dispatch.offered(params.name, self.ctx)
        except UnknownTool as error:
            raise refusal(error) from None
        self.served.set()
        self.active += 1
        try:
            return await self._reply(self.caller(request), params)
        finally:
            self.active -= 1

    async def _reply(self, caller: Caller, params: types.CallToolRequestParams) -> Reply:
        answer = await self._begin(caller, params, confirmed=False)
        if isinstance(answer, Envelope):
            assert answer.confirm is not None
            agreed = asking.answered(params)
            if agreed is None and asking.is_modern(caller.request):
                return asking.question(answer.confirm)
            if agreed is None:
                agreed = await asking.ask(caller.request, answer.confirm)
            if agreed is not None:
                answer = await self._begin(caller, params, True) if agreed else dispatch.declined(answer, caller.ctx)
        if isinstance(answer, types.CallToolResult):
            return answer
        if isinstance(answer, dispatch.JobPending) and self.tasks and tasks.wanted(caller.request):
            return await aside(partial(tasks.created, answer.job_id, caller.ctx))
        if not isinstance(answer, Envelope):
            answer = await self._follow(caller, params.name, answer)
        finish = partial(tool_result, answer, caller.ctx)
        return await anyio.to_thread.run_sync(finish, limiter=self._look_limit)

    async def _begin(self, caller: Caller, params: types.CallToolRequestParams, confirmed: bool) -> Begun:
        """An answer that needs no more is finished by the thread that made it: beside a tool that computes, each
        change of threads costs its switch interval. An envelope is one that asks, and whose caller can be asked."""

        def begin() -> Begun:
            answer = dispatch.start(params.name, params.arguments or {}, caller.ctx, confirmed)
            if not isinstance(answer, Envelope) or (answer.confirm is not None and asking.can_ask(caller.request)):
                return answer
            return tool_result(answer, caller.ctx)

        return await anyio.to_thread.run_sync(begin, abandon_on_cancel=True, limiter=self._call_limit)

    async def _follow(self, caller: Caller, name: str, pending: dispatch.Pending) -> Envelope:
        """Wait without a thread, telling progress, until there is an answer or the caller's patience is over."""
        deadline = time.monotonic() + pending.deadline_s
        teller = Teller(caller.request)
        for pause in dispatch.pauses():
            over = time.monotonic() >= deadline
            look = partial(dispatch.guarded, name, caller.ctx, pending.ticket if over else pending.poll)
            answer = await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._look_limit)
            if answer is not None:
                return answer
            await teller.tell(pending.progress())
            await anyio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        raise AssertionError("pauses() never ends")


class Teller:
    """Progress notifications: each one greater than the last, and only when there is something new."""

    STEP = 0.001

    def __init__(self, request: Request) -> None:
        self._request = request
        self._done = -1.0
        self._message: str | None = None

    async def tell(self, progress: Progress | None) -> None:
        if progress is None or (progress.done <= self._done and progress.message == self._message):
            return
        # New words at the same count still need a greater number.
        self._done = progress.done if progress.done > self._done else self._done + self.STEP
        self._message = progress.message
        await self._request.session.report_progress(self._done, progress.total, progress.message)


def build_server(handlers: Handlers) -> Server[Any]:
    """The server over these handlers and their parts; every transport uses this one."""
    server: Server[Any] = Server(
        "aisp",
        version=__version__,
        title="AI systems performance",
        instructions=INSTRUCTIONS,
        cache_hints=CACHE_HINTS,
        on_list_tools=handlers.list_tools,
    )
    assemble(server, handlers.parts, handlers.caller, handlers.call_tool)
    return server
