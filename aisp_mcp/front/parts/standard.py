"""The parts of the shipped server, in order: the first one's interceptor is outermost."""

from __future__ import annotations

from aisp_mcp.front.parts.apps import Apps
from aisp_mcp.front.parts.base import Part
from aisp_mcp.front.parts.skills import Skills


def standard_parts() -> list[Part]:
    """A fresh list; one line per part."""
    return [Apps(), Skills()]
