"""The registry as an MCP server: both protocol eras, no tool known by name."""

from __future__ import annotations

import json
import time
from functools import cached_property, partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from aisp_mcp import __version__, dispatch, registry
from aisp_mcp.context import Context
from aisp_mcp.errors import UnknownTool
from aisp_mcp.front.instructions import INSTRUCTIONS
from aisp_mcp.front.schemas import describe
from aisp_mcp.model.envelope import Envelope, Progress, Status

HOUR_MS = 3_600_000
# The catalogue never changes while the server runs, nor from one caller to another.
STATIC = CacheHint(ttl_ms=HOUR_MS, scope="public")
CALLS_AT_ONCE, LOOKS_AT_ONCE = 64, 8


class Handlers:
    """Answers tools/list and tools/call. active: calls in work; served: set by the first answer."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.active = 0

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
        return types.ListToolsResult.model_validate({"tools": [describe(tool) for tool in registry.tools()]})

    async def list_tools(
        self, _: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """All tools on one page, always in the same order."""
        if params is not None and params.cursor is not None:
            raise MCPError(types.INVALID_PARAMS, "Unknown cursor: all tools are on the first page.")
        self.served.set()
        return self._listing

    async def call_tool(
        self, request: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Run one tool. Cancelling the call lets go of it: a job that was started runs on."""
        try:
            registry.get(params.name)
        except UnknownTool as error:
            data = {"code": error.code, "hint": error.hint}
            raise MCPError(types.INVALID_PARAMS, f"{error.message} {error.hint}", data) from None
        self.served.set()
        self.active += 1
        try:
            return _result(await self._answer(request, params.name, params.arguments or {}))
        finally:
            self.active -= 1

    async def _answer(self, request: ServerRequestContext[Any, Any], name: str, arguments: dict[str, Any]) -> Envelope:
        begin = partial(dispatch.start, name, arguments, self.ctx)
        answer = await anyio.to_thread.run_sync(begin, abandon_on_cancel=True, limiter=self._call_limit)
        if not isinstance(answer, Envelope):
            answer = await self._follow(request, name, answer)
        finish = partial(dispatch.shorten, answer, self.ctx.settings)
        return await anyio.to_thread.run_sync(finish, limiter=self._look_limit)

    async def _follow(self, request: ServerRequestContext[Any, Any], name: str, pending: dispatch.Pending) -> Envelope:
        """Wait without a thread, telling progress, until there is an answer or the caller's patience is over."""
        deadline = time.monotonic() + pending.deadline_s
        teller = Teller(request)
        for pause in dispatch.pauses():
            over = time.monotonic() >= deadline
            look = partial(dispatch.guarded, name, self.ctx, pending.ticket if over else pending.poll)
            answer = await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._look_limit)
            if answer is not None:
                return answer
            await teller.tell(pending.progress())
            await anyio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        raise AssertionError("pauses() never ends")


class Teller:
    """Progress notifications: each one greater than the last, and only when there is something new."""

    STEP = 0.001

    def __init__(self, request: ServerRequestContext[Any, Any]) -> None:
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


def _result(envelope: Envelope) -> types.CallToolResult:
    """Clients show a model either the text or the structured content: both are the same data."""
    text = dispatch.to_json(envelope)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=json.loads(text),
        is_error=envelope.status is Status.ERROR,
    )


def build_server(handlers: Handlers) -> Server[Any]:
    """The server over these handlers; every transport uses this one."""
    return Server(
        "aisp",
        version=__version__,
        title="AI systems performance",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": STATIC, "server/discover": STATIC},
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
    )
