"""Asking a tool from a script, as a caller would."""

from __future__ import annotations

from typing import Any

from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute


def ask(ctx: Context, tool: str, **args: Any) -> dict[str, Any]:
    """A tool's result, as a caller gets it. Raises RuntimeError with what the tool says where it refuses."""
    answer = execute(tool, args, ctx)
    if answer.error is not None:
        raise RuntimeError(f"{tool}: {answer.error.code}: {answer.error.message} ({answer.error.hint})")
    result: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)["result"]
    return result
