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

`assemble.py` declares a capability only if some part contributes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension

from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import Tool

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
