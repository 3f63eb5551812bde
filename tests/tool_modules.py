"""Tools of the tests, imported once in a process and registered as often as needed."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from unittest import mock

from aisp_mcp.server import registry


@functools.cache
def imported(name: str) -> tuple[ModuleType, dict[str, registry.Tool], dict[str, str]]:
    """A module with the tools and aliases that importing it registers; it is not left among the modules."""
    with mock.patch.multiple(registry, _TOOLS={}, _ALIASES={}):
        importlib.import_module(name)
        return sys.modules.pop(name), registry._TOOLS, registry._ALIASES


def register(name: str) -> None:
    """Import a module of tools, as it seems to all others."""
    sys.modules[name], tools, aliases = imported(name)
    registry._TOOLS.update(tools)
    registry._ALIASES.update(aliases)
