"""Run a tool in this process."""

from __future__ import annotations

from typing import Any

from aisp_mcp import registry
from aisp_mcp.context import Context
from aisp_mcp.dispatch.arguments import validate
from aisp_mcp.dispatch.envelopes import Stopwatch, failure, internal, success
from aisp_mcp.errors import AispError
from aisp_mcp.model.envelope import Envelope


def execute(tool_name: str, raw_args: dict[str, Any], ctx: Context) -> Envelope:
    """The tool's complete answer, computed here and now. Never raises; nothing is shortened.

    A worker process calls this for a job. Fronts call `start`, which knows tickets.
    """
    watch = Stopwatch(ctx)
    try:
        tool = registry.get(tool_name)
        params = validate(tool, raw_args)
        return success(tool.name, tool.fn(params, ctx), watch)
    except AispError as error:
        return failure(tool_name[:80], error, watch)
    except Exception as error:
        return internal(tool_name[:80], error, watch)
