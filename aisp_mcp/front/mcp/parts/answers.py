"""Convert envelopes to tool results, and our errors to errors of the protocol."""

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
from aisp_mcp.server.text.rounding import shown

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
