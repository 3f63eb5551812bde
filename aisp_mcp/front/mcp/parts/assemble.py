"""Register parts with a server: join their lists, dispatch names to the first part that knows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import mcp_types as types
from mcp.server.extension import MethodBinding, RequestHandler, compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from aisp_mcp.errors import NotFound
from aisp_mcp.front.mcp.parts.answers import protocol_error, run_in_thread
from aisp_mcp.front.mcp.parts.base import Caller, CallerOf, Part, Request

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
