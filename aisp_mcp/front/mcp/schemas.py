"""The entry of a tool in tools/list. Does not import the protocol library."""

from __future__ import annotations

from typing import Any

from aisp_mcp.server.dispatch import lean_schema
from aisp_mcp.server.registry import Effect, Tool

# One small schema for every answer: the schemas of results would triple the tokens and tell a model nothing that
# the answer does not show. The result is left out because it may be anything.
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["ok", "error", "queued", "running"]},
        "error": {"type": "object"},
        "job": {"type": "object"},
    },
}


def hints(tool: Tool) -> dict[str, Any]:
    """Return the four hints; a tool that only reads may be called any number of times."""
    reads = tool.effect is Effect.READS
    return {
        "readOnlyHint": reads,
        "destructiveHint": tool.effect in (Effect.DESTROYS, Effect.ANY),
        "idempotentHint": reads,
        "openWorldHint": "network" in tool.needs,
    }


# Asks clients that load tools on demand to keep the few that lead to the others loaded.
ALWAYS_LOADED = {"anthropic/alwaysLoad": True}


def describe(tool: Tool) -> dict[str, Any]:
    """Return the entry of tools/list, which is also the snapshot that the surface test compares with."""
    entry = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.summary,
        "inputSchema": lean_schema(tool),
        "outputSchema": OUTPUT_SCHEMA,
        "annotations": hints(tool),
    }
    return {**entry, "_meta": ALWAYS_LOADED} if tool.listed == "lite" else entry
