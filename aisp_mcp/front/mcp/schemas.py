"""A tool as a client sees it: the entry of tools/list. Knows nothing of any protocol library."""

from __future__ import annotations

from typing import Any

from aisp_mcp.server.dispatch import lean_schema
from aisp_mcp.server.registry import Effect, Tool

# One small schema for every answer: the result's own schema would cost three times the tokens and tell a model
# nothing that it does not see in the answer. The result is left out: it may be anything.
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["ok", "error", "queued", "running"]},
        "error": {"type": "object"},
        "job": {"type": "object"},
    },
}


def hints(tool: Tool) -> dict[str, Any]:
    """The four hints. A tool that only reads may be called as often as one likes."""
    reads = tool.effect is Effect.READS
    return {
        "readOnlyHint": reads,
        "destructiveHint": tool.effect in (Effect.DESTROYS, Effect.ANY),
        "idempotentHint": reads,
        "openWorldHint": "network" in tool.needs,
    }


# A client that loads tools only when it searches for them is asked to have the few at hand that lead to the others.
ALWAYS_LOADED = {"anthropic/alwaysLoad": True}


def describe(tool: Tool) -> dict[str, Any]:
    """The tool as a client sees it: the entry of tools/list, and the file its surface test compares with."""
    seen = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.summary,
        "inputSchema": lean_schema(tool),
        "outputSchema": OUTPUT_SCHEMA,
        "annotations": hints(tool),
    }
    return {**seen, "_meta": ALWAYS_LOADED} if tool.listed == "lite" else seen
