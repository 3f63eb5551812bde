"""Find the tools: the shipped families and the user's own modules."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from aisp_mcp.errors import AispError
from aisp_mcp.server import catalog, registry
from aisp_mcp.settings import Settings

SHIPPED = "aisp_mcp."  # prefix of this package's modules
MOST_WORDS = 3  # of a command


def load_catalog(settings: Settings) -> None:
    """Import every shipped family and each module of AISP_TOOL_MODULES; importing registers the tools.

    Raises AispError TOOL_MODULE with the module's name and the cause if one of the user's modules cannot be used: a
    server that silently lacks tools is worse than one that does not start.
    """
    # By name: features are layers above this one, which imports none of them.
    for module in catalog.sources():
        importlib.import_module(module)
    for name in extra_modules(settings):
        _import_extra(name)


def load_listed(settings: Settings) -> None:
    """Register the user's modules; load a shipped tool when it is called, since the generated list describes it.

    All families together would cost a server a quarter of a second before its first answer. Raises like load_catalog.
    """
    for name in extra_modules(settings):
        _import_extra(name)
    registry.load_others(lambda name: load_tool(name, settings) if name else load_catalog(settings))


def load_tool(name: str, settings: Settings) -> None:
    """Register one tool and only what it needs: the shipped family or the user's module that defines it.

    For a process that runs only this tool: the other families would add a tenth of a second. If no file defines it,
    everything is loaded. Raises like load_catalog.
    """
    if _import_family(f"\ndef {name}("):
        return
    for module in extra_modules(settings):
        _import_extra(module)
    if not registry.is_loaded(name):
        load_catalog(settings)


def load_command(words: Sequence[str], settings: Settings) -> None:
    """Register the tool that the leading words name and the user's modules; load the others on demand.

    For a process that runs one command: loading all families takes a quarter of a second. Words that name no tool load
    everything. Raises like load_catalog.
    """
    definitions = [f'cli="{" ".join(words[:count])}"' for count in range(min(len(words), MOST_WORDS), 0, -1)]
    definitions += [f"\ndef {words[0]}("] if words and words[0].startswith("aisp_") else []
    shipped = any(_import_family(text) for text in definitions)
    for module in extra_modules(settings):
        _import_extra(module)
    line = f"{' '.join(words)} "
    if shipped or any(line.startswith((f"{tool.name} ", f"{tool.cli} ")) for tool in registry.loaded()):
        registry.load_others(lambda name: load_tool(name, settings) if name else load_catalog(settings))
    else:
        load_catalog(settings)


def _import_family(text: str) -> bool:
    """Import the shipped family whose file has this text, if there is one."""
    module = next((module for module, source in catalog.sources().items() if text in source), "")
    if module:
        importlib.import_module(module)
    return bool(module)


def extra_modules(settings: Settings) -> list[str]:
    """The user's own tool modules, in their order."""
    return [name for part in settings.tool_modules.split(",") if (name := part.strip())]


def _import_extra(name: str) -> None:
    try:
        importlib.import_module(name)
        for tool in registry.loaded():
            if tool.fn.__module__ == name:
                if any(f"\ndef {tool.name}(" in source for source in catalog.sources().values()):
                    raise ValueError(f"two tools named {tool.name}")
                # Fronts will need these: a clear error now is better than a catalogue that cannot be listed.
                tool.params.model_json_schema()
                tool.result.model_fields  # noqa: B018
    except Exception as error:
        raise AispError(
            "TOOL_MODULE",
            f"The tool module '{name}' cannot be used: {type(error).__name__}: {str(error)[:300]}",
            "Correct the module or take it out of AISP_TOOL_MODULES (it must be importable, see PYTHONPATH).",
        ) from error
