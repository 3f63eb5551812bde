"""Answers in the protocol's form: an envelope as a tool result, an error of ours as an error of the protocol."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from aisp_mcp.envelope import Envelope, Status
from aisp_mcp.errors import AispError
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")

T = TypeVar("T")


def tool_result(envelope: Envelope, ctx: Context) -> types.CallToolResult:
    """The envelope, shortened. Clients show a model either the text or the structured content: both are the same."""
    text = dispatch.to_json(dispatch.shorten(dispatch.reachable(envelope, ctx.tools), ctx.settings, ctx.principal))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=json.loads(text),
        is_error=envelope.status is Status.ERROR,
    )


async def aside(work: Callable[[], T]) -> T:
    """In a worker thread; what it raises becomes an error of the protocol."""
    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except AispError as error:
        raise refusal(error) from None
    except MCPError:
        raise
    except Exception:
        log.exception("a part of the server failed")
        raise MCPError(types.INTERNAL_ERROR, "This failed unexpectedly; the server's log has the reason.") from None


def refusal(error: AispError, code: int = types.INVALID_PARAMS, **data: Any) -> MCPError:
    """The error in the protocol's form, with our code and hint as data."""
    said = error.message if error.hint is None else f"{error.message} {error.hint}"
    return MCPError(code, said, {"code": error.code, "hint": error.hint, **data})
