"""Tools as words of a command line: finding one, and writing a call the way a person would type it."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from aisp_mcp.errors import UnknownTool, UsageError
from aisp_mcp.front.cli import bench_utils, launch_flags
from aisp_mcp.front.cli.aliases import real
from aisp_mcp.server import registry
from aisp_mcp.server.registry import JobParams, Tool


def by_words() -> dict[tuple[str, ...], Tool]:
    """The tools that are loaded, by their words: ("bench", "run")."""
    return {tuple(tool.cli.split()): tool for tool in registry.loaded()}


def groups() -> dict[str, list[Tool]]:
    """All tools by their first word, in the registry's order."""
    found: dict[str, list[Tool]] = {}
    for tool in sorted(registry.tools(), key=lambda t: t.cli):
        found.setdefault(tool.cli.split()[0], []).append(tool)
    return found


def find(argv: Sequence[str]) -> tuple[Tool, list[str]]:
    """The tool that the leading words name, and the rest. A tool's own name works too.

    Raises UsageError UNKNOWN_COMMAND with a did-you-mean.
    """
    if tuple(argv[:2]) == ("bench", "utils"):
        name, rest = bench_utils.resolve(argv[2:])
        return registry.get(name), rest
    if argv and registry.is_loaded(argv[0]):
        return registry.get(argv[0]), list(argv[1:])
    known, argv = by_words(), real(tuple(argv))
    for count in range(min(len(argv), max(map(len, known), default=0)), 0, -1):
        tool = known.get(tuple(argv[:count]))
        if tool is not None:
            rest = list(argv[count:])
            return tool, launch_flags.translated(rest) if tool.cli == "bench run" else rest
    raise unknown(argv)


def unknown(argv: Sequence[str]) -> UsageError:
    """The error for words that name no tool."""
    words = []
    for word in argv[:2]:
        if word.startswith("-"):
            break
        words.append(word)
    said = " ".join(words)
    in_group = groups().get(words[0]) if words else None
    options = [tool.cli for tool in in_group or registry.tools()]
    # A wrong group with a right verb is as common as a wrong verb.
    near = difflib.get_close_matches(said, list(groups()), n=1, cutoff=0.5) if len(words) == 1 else []
    near = near or difflib.get_close_matches(said, options, n=1, cutoff=0.5)
    hint = f"Did you mean: aisp {near[0]}? " if near else ""
    helper = f"aisp {words[0]} --help" if in_group else "aisp --help"
    return UsageError("UNKNOWN_COMMAND", f"There is no command 'aisp {said[:80]}'.", f"{hint}All commands: {helper}")


def command_line(tool_name: str, args: Mapping[str, Any]) -> str:
    """The call as a line for a shell: `aisp job status ID`."""
    try:
        tool = registry.get(tool_name)
    except UnknownTool:
        return f"{tool_name} {json.dumps(dict(args), ensure_ascii=False)}" if args else tool_name
    words = ["aisp", *tool.cli.split()]
    first = positionals(tool)
    for name, value in args.items():
        words += _words(name, value, bare=len(first) == 1 and name == first[0])
    return shlex.join(words)


def positionals(tool: Tool) -> list[str]:
    """Arguments that may stand without their flag: the required ones, or else the first of its own."""
    fields = tool.params.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    return required or [name for name in fields if name not in JobParams.model_fields][:1]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _words(name: str, value: Any, bare: bool) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else "--no-" + name.replace("_", "-")]
    items = value if isinstance(value, list) else [value]
    texts = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]
    if bare and not any(text.startswith("-") for text in texts):
        return texts
    return [flag(name), *texts]
