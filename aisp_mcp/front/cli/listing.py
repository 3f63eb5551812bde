"""The catalogue of tools for `--list`, as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import input_schema
from aisp_mcp.server.registry import Tool


def entry(tool: Tool) -> dict[str, Any]:
    """Return all facts about a tool."""
    return {
        "name": tool.name,
        "cli": f"aisp {tool.cli}",
        "description": tool.summary,
        "family": tool.family,
        "effect": tool.effect.value,
        "cost": tool.cost.value,
        "job": tool.job is not None,
        "listed": tool.listed,
        "needs": list(tool.needs),
        "next": list(tool.next),
        "aliases": list(tool.aliases),
        "input_schema": input_schema(tool),
    }


def as_json() -> str:
    return json.dumps([entry(tool) for tool in registry.tools()], indent=1, ensure_ascii=False)


def as_text() -> str:
    """Return the catalogue as text: one line per tool, grouped by family."""
    tools = registry.tools()
    width = max((len(tool.name) for tool in tools), default=0)
    cli_width = max((len(tool.cli) for tool in tools), default=0)
    lines: list[str] = []
    family = ""
    for tool in tools:
        if tool.family != family:
            family = tool.family
            lines += ["", f"{family}:"]
        lines.append(f"  {tool.name:<{width}}  aisp {tool.cli:<{cli_width}}  {tool.summary}")
        lines += [f"  {alias:<{width}}  = {tool.name}" for alias in tool.aliases]
    return "\n".join(lines[1:])
