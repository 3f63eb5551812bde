"""Selection of tools that a server offers. Fixed when it starts: the list is the same on every connection.

Listing costs a model's context, calling does not. By default, a short list is shown, and the tool that calls other
tools reaches the rest. Naming toolsets or tools selects only those, unless that tool is among them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import UsageError
from aisp_mcp.server import catalog, registry
from aisp_mcp.server.dispatch.loading import SHIPPED
from aisp_mcp.server.registry import Effect, Tool
from aisp_mcp.settings import ToolSettings

DEFAULT, ALL, JOBS = "default", "all", "jobs"
SHOWN = 60  # known names in a hint: every toolset, or the first tools


@dataclass(frozen=True)
class Selection:
    """listed: names of tools/list, in the registry's order. chosen: tools that may be called, None for all."""

    listed: tuple[str, ...]
    chosen: tuple[Tool, ...] | None

    @property
    def names(self) -> frozenset[str] | None:
        """The names that may be called; None for all, loaded or not."""
        return None if self.chosen is None else frozenset(tool.name for tool in self.chosen)

    @property
    def allowed(self) -> frozenset[str]:
        """All names that may be called."""
        return frozenset(tool.name for tool in (registry.tools() if self.chosen is None else self.chosen))


def select(options: ToolSettings) -> Selection:
    """The tools these settings choose from the loaded ones.

    Raises UsageError UNKNOWN_TOOLSET, UNKNOWN_TOOL or NO_TOOLS.
    """
    if is_open(options) and not registry.is_complete():  # a tool is loaded when it is called
        return Selection(_generated_list(options), None)
    everything = registry.tools()
    excluded = {registry.get(name).name for name in _checked_tools(options.exclude_tools)}
    usable = [tool for tool in everything if tool.name not in excluded and _may_run(tool, options.read_only)]
    named = _named(options, everything)
    listed = [tool for tool in usable if tool.name in named]
    if not listed:
        raise UsageError("NO_TOOLS", "These options leave no tool to offer.", "Leave one of them out.")
    names = tuple(tool.name for tool in listed)
    if is_open(options):
        return Selection(names, None)
    reaches_all = any(tool.effect is Effect.ANY for tool in listed)
    return Selection(names, tuple(usable if reaches_all else listed))


def is_open(options: ToolSettings) -> bool:
    """Return True if these settings exclude no tool: the default or small list, from which all can be reached."""
    return not (options.toolsets or options.tools or options.exclude_tools or options.read_only)


def _generated_list(options: ToolSettings) -> tuple[str, ...]:
    """The names of the default or small list, without importing a shipped tool."""
    own = [tool for tool in registry.loaded() if not tool.fn.__module__.startswith(SHIPPED)]
    tools: list[catalog.ListedTool | Tool] = [*catalog.listed_tools(), *own]
    chosen = [tool for tool in tools if tool.listed == "lite"] if options.lite else tools
    return tuple(tool.name for tool in sorted(chosen, key=lambda tool: (tool.family, tool.name)))


def reachable(envelope: Envelope, allowed: frozenset[str] | None) -> Envelope:
    """The envelope without next steps that this server would refuse."""
    error = envelope.error
    if allowed is None or error is None or all(step.tool in allowed for step in error.next_steps):
        return envelope
    steps = [step for step in error.next_steps if step.tool in allowed]
    return envelope.model_copy(update={"error": error.model_copy(update={"next_steps": steps})})


def toolsets() -> list[str]:
    """The names --toolsets takes."""
    return [DEFAULT, ALL, *sorted({name for tool in registry.tools() for name in tool.toolsets})]


def _may_run(tool: Tool, read_only: bool) -> bool:
    # The tool that a calling tool calls is checked at the call.
    return not read_only or tool.effect in (Effect.READS, Effect.ANY)


def _named(options: ToolSettings, everything: Sequence[Tool]) -> set[str]:
    if options.lite:
        return {tool.name for tool in everything if tool.listed == "lite"}
    sets = _words(options.toolsets)
    if not sets and not options.tools:
        sets = [DEFAULT]
    names = {registry.get(name).name for name in _checked_tools(options.tools)}
    for word in sets:
        names |= {tool.name for tool in _toolset(word, everything)}
    if sets and any(tool.job for tool in everything if tool.name in names):
        # A job answers with a ticket, which is useless without the tools that accept it.
        every = sets != [DEFAULT]
        names |= {tool.name for tool in everything if tool.family == JOBS and (every or tool.listed != "all")}
    return names


def _toolset(word: str, everything: Sequence[Tool]) -> list[Tool]:
    if word == ALL:
        return list(everything)
    if word == DEFAULT:
        # A user names only the few tools of their own that they want listed.
        return [tool for tool in everything if tool.listed != "all" or not tool.fn.__module__.startswith(SHIPPED)]
    tools = [tool for tool in everything if word in tool.toolsets]
    if not tools:
        raise _unknown("UNKNOWN_TOOLSET", "toolset", word, toolsets())
    return tools


def _checked_tools(text: str) -> Iterable[str]:
    for name in _words(text):
        if name not in (known := registry.names()):
            raise _unknown("UNKNOWN_TOOL", "tool", name, known)
        yield name


def _unknown(code: str, what: str, word: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    hint = (
        f"Did you mean '{near[0]}'?"
        if near
        else f"Known: {', '.join(known[:SHOWN])}{', …' if len(known) > SHOWN else '.'}"
    )
    return UsageError(code, f"No {what} is named '{word[:80]}'.", hint)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
