"""Find the tool of a command line, and write a call as a command line."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from aisp_mcp.errors import UnknownTool, UsageError
from aisp_mcp.front.cli import aliases, launch_flags
from aisp_mcp.front.cli.aliases import resolve_alias
from aisp_mcp.server import registry
from aisp_mcp.server.registry import JobParams, Tool


def by_words() -> dict[tuple[str, ...], Tool]:
    """Return the loaded tools by the words of their command, such as ("bench", "run")."""
    return {tuple(tool.cli.split()): tool for tool in registry.loaded()}


def groups() -> dict[str, list[Tool]]:
    """Return all tools by the first word of their command, sorted."""
    groups: dict[str, list[Tool]] = {}
    for tool in sorted(registry.tools(), key=lambda tool: tool.cli):
        groups.setdefault(tool.cli.split()[0], []).append(tool)
    return groups


def find(argv: Sequence[str]) -> tuple[Tool, list[str]]:
    """Return the tool that the leading words name, and the remaining words. The tool's MCP name works too.

    Raises UsageError UNKNOWN_COMMAND with a did-you-mean.
    """
    if tuple(argv[:2]) == ("bench", "utils"):
        name, rest = aliases.resolve_utility(argv[2:])
        return registry.get(name), rest
    if argv and registry.is_loaded(argv[0]):
        return registry.get(argv[0]), [*_flags(registry.implied(argv[0])), *argv[1:]]
    known, argv = by_words(), resolve_alias(tuple(argv))
    for count in range(min(len(argv), max(map(len, known), default=0)), 0, -1):
        tool = known.get(tuple(argv[:count]))
        if tool is not None:
            rest = list(argv[count:])
            return tool, _TRANSLATIONS[tool.cli](rest) if tool.cli in _TRANSLATIONS else rest
    raise unknown(argv)


def _into_working_folder(words: list[str]) -> list[str]:
    """The words of `bench new NAME` with the folder that users of a shell expect: benchmarks/NAME."""
    from aisp_mcp.suites.functions.tools import identifier

    taken = {index + 1 for index, word in enumerate(words) if word in ("--like", "--name")}
    name = next((word for index, word in enumerate(words) if not word.startswith("-") and index not in taken), None)
    if name is None or any(word == "--to" or word.startswith("--to=") for word in words):
        return words
    return [*words, "--to", f"benchmarks/{identifier(name)}"]


def _into_repository(words: list[str]) -> list[str]:
    """The words of `gate init` with the folder that users of a shell expect: the repository around the
    working folder.
    """
    named = any(not word.startswith("-") or word.startswith("--to=") for word in words)
    return words if named else [*words, "--to", "."]


# By command: words that users of a shell may leave out or call differently.
_TRANSLATIONS = {
    "bench run": launch_flags.translate,
    "bench verify": launch_flags.of_a_pair,
    "profile ncu": launch_flags.counters_by_workload,
    "bench new": _into_working_folder,
    "gate init": _into_repository,
}


def unknown(argv: Sequence[str]) -> UsageError:
    """Return the error for words that do not name a tool."""
    words = []
    for word in argv[:2]:
        if word.startswith("-"):
            break
        words.append(word)
    command = " ".join(words)
    in_group = groups().get(words[0]) if words else None
    options = [tool.cli for tool in in_group or registry.tools()]
    # The group is as often wrong as the verb.
    near = difflib.get_close_matches(command, list(groups()), n=1, cutoff=0.5) if len(words) == 1 else []
    near = near or difflib.get_close_matches(command, options, n=1, cutoff=0.5)
    hint = f"Did you mean: aisp {near[0]}? " if near else ""
    helper = f"aisp {words[0]} --help" if in_group else "aisp --help"
    return UsageError("UNKNOWN_COMMAND", f"There is no command 'aisp {command[:80]}'.", f"{hint}All commands: {helper}")


def command_line(tool_name: str, args: Mapping[str, Any]) -> str:
    """Return a call as a line for a shell: `aisp job status ID`."""
    try:
        tool, args = registry.get(tool_name), {**registry.implied(tool_name), **args}
    except UnknownTool:
        return f"{tool_name} {json.dumps(dict(args), ensure_ascii=False)}" if args else tool_name
    words = ["aisp", *tool.cli.split()]
    names = positionals(tool)
    in_order = [name for name in args if name in names] == names and all(isinstance(args[n], str) for n in names)
    for name, value in args.items():
        words += _words(name, value, positional=names == [name] or (in_order and name in names))
    return shlex.join(words)


def in_words_of_shell(text: str, tool: Tool | None = None) -> str:
    """A text with commands in place of tools. tool: for its caller, also with options in place of its arguments."""
    if tool is not None:
        text = re.sub(r"Expected: [^.]*(\.|$)", f"All options: aisp {tool.cli} --help", text)
        text = re.sub(r"has no argument ([^.]*)", lambda match: f"has no option {_as_flags(match[1])}", text)
    text = re.sub(r"(?<![\w/])(aisp_[a-z0-9_]+)\b", lambda match: _command(match[1]), text)
    names = list((field.alias or name) for name, field in tool.params.model_fields.items()) if tool else []
    if not names:
        return text
    any_name = "|".join(names)
    text = re.sub(
        rf"(?<![\w-])({any_name}): (\[[^\]]*\]|'[^']*')", lambda match: f"{flag(match[1])} {_plain(match[2])}", text
    )
    return re.sub(rf"'({any_name})'", lambda match: flag(match[1]), text)


def _command(name: str) -> str:
    """The command of a tool; another word stays as it is."""
    try:
        return command_line(name, {}) if name != "aisp_mcp" else name
    except UnknownTool:
        return name


def _as_flags(names: str) -> str:
    return re.sub(r"'([\w-]+)'", lambda match: flag(match[1]), names)


def _plain(literal: str) -> str:
    """A quoted text, or a list of them, as words."""
    return re.sub(r"[\[\],']+", "", literal) if literal.startswith("[") else literal


def positionals(tool: Tool) -> list[str]:
    """Return the arguments that need no flag: the required ones, or else the tool's first argument."""
    fields = tool.params.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    return required or [name for name in fields if name not in JobParams.model_fields][:1]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _flags(args: Mapping[str, Any]) -> list[str]:
    return [word for name, value in args.items() for word in _words(name, value, positional=False)]


def _words(name: str, value: Any, positional: bool) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else "--no-" + name.replace("_", "-")]
    items = value if isinstance(value, list) else [value]
    texts = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]
    if positional and not any(text.startswith("-") for text in texts):
        return texts
    return [flag(name), *texts]
