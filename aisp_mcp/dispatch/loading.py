"""Find the tools: the shipped families and the user's own modules."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from aisp_mcp import registry
from aisp_mcp.errors import AispError
from aisp_mcp.settings import Settings

CATALOG = "aisp_mcp.catalog"


def load_catalog(settings: Settings) -> None:
    """Import every shipped family and each module of AISP_TOOL_MODULES; importing registers the tools.

    Raises AispError TOOL_MODULE with the module's name and the cause when one of the user's modules cannot be used:
    a server that lacks tools without saying so would be worse than one that does not start.
    """
    # By name, because the catalogue lies above this room: it plugs in, nothing here knows it.
    for module in pkgutil.iter_modules(importlib.import_module(CATALOG).__path__):
        importlib.import_module(f"{CATALOG}.{module.name}")
    for name in extra_modules(settings):
        _import_extra(name)


def load_tool(name: str, settings: Settings) -> None:
    """Register one tool and no more than it needs: the shipped family or the user's module that defines it.

    For a process that runs only this one: the other families would cost it a tenth of a second. Where no file defines
    it, everything is loaded. Raises like load_catalog.
    """
    mine = f"\ndef {name}("
    for folder in importlib.import_module(CATALOG).__path__:
        for file in Path(folder).glob("*.py"):
            if mine in file.read_text("utf-8"):
                importlib.import_module(f"{CATALOG}.{file.stem}")
                return
    for module in extra_modules(settings):
        _import_extra(module)
    if all(tool.name != name for tool in registry.tools()):
        load_catalog(settings)


def extra_modules(settings: Settings) -> list[str]:
    """The user's own tool modules, in their order."""
    return [name for part in settings.tool_modules.split(",") if (name := part.strip())]


def _import_extra(name: str) -> None:
    try:
        importlib.import_module(name)
        for tool in registry.tools():
            if tool.fn.__module__ == name:
                # What a front will ask for: better a clear word now than a catalogue that cannot be listed.
                tool.params.model_json_schema()
                tool.result.model_fields  # noqa: B018
    except Exception as error:
        raise AispError(
            "TOOL_MODULE",
            f"The tool module '{name}' cannot be used: {type(error).__name__}: {str(error)[:300]}",
            "Correct the module or take it out of AISP_TOOL_MODULES (it must be importable, see PYTHONPATH).",
        ) from error
