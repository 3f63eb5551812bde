"""The parts of the shipped server, in order; the interceptor of the first is outermost."""

from __future__ import annotations

from aisp_mcp.front.mcp.parts.apps import Apps
from aisp_mcp.front.mcp.parts.base import Part
from aisp_mcp.front.mcp.parts.completions import Completions
from aisp_mcp.front.mcp.parts.prompts import Prompts
from aisp_mcp.front.mcp.parts.resources import Resources
from aisp_mcp.front.mcp.parts.skills import Skills
from aisp_mcp.front.mcp.parts.tasks import Tasks


def standard_parts() -> list[Part]:
    """Return new instances of the parts."""
    return [Tasks(), Apps(), Skills(), Resources(), Prompts(), Completions()]
