"""The parts of the shipped server, in order: the first one's interceptor is outermost."""

from __future__ import annotations

from aisp_mcp.front.parts.apps import Apps
from aisp_mcp.front.parts.base import Part
from aisp_mcp.front.parts.completions import Completions
from aisp_mcp.front.parts.prompts import Prompts
from aisp_mcp.front.parts.resources import Resources
from aisp_mcp.front.parts.skills import Skills
from aisp_mcp.front.parts.tasks import Tasks


def standard_parts() -> list[Part]:
    """A fresh list; one line per part."""
    return [Tasks(), Apps(), Skills(), Resources(), Prompts(), Completions()]
