"""Interface of a part of the MCP server.

The server is its tools plus a list of parts (`standard_parts` in `server.py`). A part is one module in this folder with
one class that overrides what it contributes; by default it contributes nothing:

- `identifier`, `settings()`: the protocol extension it implements, announced in `capabilities.extensions`. A part
  without an identifier is not announced.
- `methods()`: requests of that extension (`MethodBinding`), such as `tasks/get`; their handlers are coroutines, must
  read the disk in a thread (`run_in_thread`), and get their caller from `self.caller_of(request)`.
- `intercept_tool_call()`: wraps every `tools/call`; the first part of the list is outermost.
- `tool_meta(tool)`: entries for a tool's `_meta` in `tools/list`.
- `list_resources(caller)`, `list_templates()`, `read_resource(uri, caller)`: the lists of all parts are joined; a URI
  is read by the first part that does not return None. A part raises NotFound to refuse a URI with its own message.
- `list_prompts()`, `get_prompt(name, arguments, caller)`: prompts, in the same way.
- `complete(params, caller)`: values for an argument of a prompt or a template, or None if it is another part's.

All but the methods and the interceptor are plain functions: they run in a worker thread and may read the disk. An
AispError they raise reaches the client as "invalid params" with its code and hint; any other exception is reported
as a bug, with its text only in the log. What a part lists must not depend on the connection or change while the server
runs, except for the resources that a caller owns.

`assemble` declares a capability only if some part contributes to it. Envelopes become tool results, and our errors
become errors of the protocol, by the functions at the end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, RequestHandler, compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from aisp_mcp.envelope import Envelope, Status
from aisp_mcp.errors import AispError, NotFound
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool
from aisp_mcp.server.text.numbers import shown

Request = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Caller:
    """The sender of a request. ctx: the context for their principal. request: the protocol's record of the call."""

    ctx: Context
    request: Request


CallerOf = Callable[[Request], Caller]


class Part(Extension):
    """Base class; see the module's docstring. caller_of: returns a request's caller, set during assembly."""

    caller_of: CallerOf

    def tool_meta(self, tool: Tool) -> dict[str, Any]:
        """Entries for the tool's `_meta` in `tools/list`; keys must not collide with another part's."""
        return {}

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        """The resources listed for this caller, in a fixed order."""
        return ()

    def list_templates(self) -> Sequence[types.ResourceTemplate]:
        """URI templates, in a fixed order."""
        return ()

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | types.InputRequiredResult | None:
        """The contents of this URI, or None if it is not this part's."""
        return None

    def list_prompts(self) -> Sequence[types.Prompt]:
        """The prompts, in a fixed order."""
        return ()

    def get_prompt(
        self, name: str, arguments: dict[str, str], caller: Caller
    ) -> types.GetPromptResult | types.InputRequiredResult | None:
        """The prompt with its arguments filled in, or None if it is not this part's."""
        return None

    def complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion | None:
        """At most 100 values for an argument, or None if it is not this part's."""
        return None


MAX_VALUES = 100
# The code that servers gave for a missing resource before 2026-07-28.
RESOURCE_NOT_FOUND_OLD = -32002


def assemble(server: Server[Any], parts: Sequence[Part], caller_of: CallerOf, call_tool: RequestHandler) -> None:
    """Register everything the parts contribute, with call_tool innermost. Raises ValueError for duplicates."""
    server.add_request_handler("tools/call", types.CallToolRequestParams, compose_tool_call_handler(parts, call_tool))
    for part in parts:
        part.caller_of = caller_of
        _declare_extension(server, part)
        for binding in part.methods():
            if server.get_request_handler(binding.method) is not None:
                raise ValueError(f"two parts serve {binding.method}")
            server.add_request_handler(binding.method, binding.params_type, _for_versions(binding))
    joined = _Joined(parts, caller_of)
    if _any_overrides(parts, "list_resources", "list_templates", "read_resource"):
        server.add_request_handler("resources/list", types.PaginatedRequestParams, joined.list_resources)
        server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, joined.list_templates)
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, joined.read_resource)
    if _any_overrides(parts, "list_prompts"):
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, joined.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, joined.get_prompt)
    if _any_overrides(parts, "complete"):
        server.add_request_handler("completion/complete", types.CompleteRequestParams, joined.complete)


def _declare_extension(server: Server[Any], part: Part) -> None:
    identifier: str | None = getattr(part, "identifier", None)
    if identifier is None:
        return
    if identifier in server.extensions:
        raise ValueError(f"two parts are the extension {identifier}")
    server.extensions[identifier] = part.settings()


def _any_overrides(parts: Sequence[Part], *names: str) -> bool:
    return any(getattr(type(part), name) is not getattr(Part, name) for part in parts for name in names)


def _for_versions(binding: MethodBinding) -> RequestHandler:
    """Wrap the handler so that it exists only in its protocol versions."""

    async def handle(request: Request, params: Any) -> Any:
        if binding.protocol_versions is not None and request.protocol_version not in binding.protocol_versions:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", binding.method)
        return await binding.handler(request, params)

    return handle


class _Joined:
    """Answers the requests that several parts contribute to."""

    def __init__(self, parts: Sequence[Part], caller_of: CallerOf) -> None:
        self._parts = parts
        self._caller_of = caller_of

    async def list_resources(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        one_page(params)
        caller = self._caller_of(request)
        lists = await run_in_thread(lambda: [part.list_resources(caller) for part in self._parts])
        return types.ListResourcesResult(resources=list(chain(*lists)))

    async def list_templates(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        one_page(params)
        return types.ListResourceTemplatesResult(
            resource_templates=list(chain(*(part.list_templates() for part in self._parts)))
        )

    async def read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri, caller = str(params.uri), self._caller_of(request)
        result = await run_in_thread(partial(self._read, uri, caller))
        if isinstance(result, NotFound):
            old = request.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
            raise protocol_error(result, RESOURCE_NOT_FOUND_OLD if old else types.INVALID_PARAMS, uri=uri[:200])
        return result

    def _read(self, uri: str, caller: Caller) -> types.ReadResourceResult | types.InputRequiredResult | NotFound:
        try:
            for part in self._parts:
                if (result := part.read_resource(uri, caller)) is not None:
                    return result
        except NotFound as error:
            return error
        return NotFound("NO_SUCH_RESOURCE", f"No resource has the URI {uri[:200]}.")

    async def list_prompts(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        one_page(params)
        return types.ListPromptsResult(prompts=list(chain(*(part.list_prompts() for part in self._parts))))

    async def get_prompt(
        self, request: Request, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        name, arguments, caller = params.name, params.arguments or {}, self._caller_of(request)
        return await run_in_thread(partial(self._get_prompt, name, arguments, caller))

    def _get_prompt(
        self, name: str, arguments: dict[str, str], caller: Caller
    ) -> types.GetPromptResult | types.InputRequiredResult:
        for part in self._parts:
            if (result := part.get_prompt(name, arguments, caller)) is not None:
                return result
        raise NotFound("NO_SUCH_PROMPT", f"There is no prompt '{name[:80]}'.", "prompts/list lists all prompts.")

    async def complete(self, request: Request, params: types.CompleteRequestParams) -> types.CompleteResult:
        caller = self._caller_of(request)
        completion = await run_in_thread(partial(self._complete, params, caller))
        if (total := len(completion.values)) > MAX_VALUES:
            completion = types.Completion(values=completion.values[:MAX_VALUES], total=total, has_more=True)
        return types.CompleteResult(completion=completion)

    def _complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion:
        for part in self._parts:
            if (completion := part.complete(params, caller)) is not None:
                return completion
        return types.Completion(values=[], total=0, has_more=False)


def one_page(params: types.PaginatedRequestParams | None) -> None:
    """Raises MCPError for a cursor: every list is a single page, so no server of ours returned one."""
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: everything is on the first page.")


log = logging.getLogger("aisp")

T = TypeVar("T")


def tool_result(envelope: Envelope, ctx: Context) -> types.CallToolResult:
    """Convert a shortened envelope. Text and structured content are the same, since clients show a model either one."""
    full = dispatch.to_json(dispatch.shorten(dispatch.reachable(envelope, ctx.tools), ctx.settings, ctx.principal))
    data = shown(json.loads(full))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=json.dumps(data, separators=(",", ":"), ensure_ascii=False))],
        structured_content=data,
        is_error=envelope.status is Status.ERROR,
    )


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run work in a worker thread; its exceptions become errors of the protocol."""
    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except AispError as error:
        raise protocol_error(error) from None
    except MCPError:
        raise
    except Exception:
        log.exception("a part of the server failed")
        raise MCPError(types.INTERNAL_ERROR, "This failed unexpectedly; see the server's log.") from None


def protocol_error(error: AispError, code: int = types.INVALID_PARAMS, **data: Any) -> MCPError:
    """Convert an error, with our code and hint as data."""
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return MCPError(code, message, {"code": error.code, "hint": error.hint, **data})
