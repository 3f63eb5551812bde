"""The words people use when they mean a tool."""

from __future__ import annotations

from functools import cache

from aisp_mcp.machine.datasheets.load import document


@cache
def questions() -> dict[str, str]:
    """Tool name to the words people use when they mean it."""
    words: dict[str, str] = document("questions.yaml", "aisp_mcp.assist.guide")
    return words
