"""Every command that a page, passage or skill names exists, with every flag it is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from aisp_mcp.assist.ask.pages import concepts
from aisp_mcp.errors import AispError
from aisp_mcp.front.cli import arguments, commands
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import input_schema, load_catalog
from aisp_mcp.server.registry import tools
from aisp_mcp.settings import Settings

ROOT = Path(__file__).parents[2]
# Commands with parsers of their own, which the tests of those fronts cover.
OWN = {
    ("doctor",),
    ("dashboard",),
    ("serve-judge",),
    ("--list",),
    ("--version",),
    ("--help",),
    ("bench", "tui"),
    ("GROUP", "VERB"),
}
_INLINE = re.compile(r"`([^`]+)`")
_LINE = re.compile(r"^(?:    |\$ )?(aisp [a-z].*)$", re.MULTILINE)
_END = re.compile(r".*(…|\.\.\.)|[|>&;<]")
_BLOCKS = re.compile(r"^```\w*\n(.*?)^```|((?:^    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[str, str]]:
    for concept in concepts().values():
        yield concept.name, concept.text
    for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("aisp_mcp/assist/skills/**/*.md")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    load_catalog(Settings.from_env({}))
    for tool in tools():
        yield tool.name, tool.fn.__doc__ or ""


def named(text: str) -> Iterator[str]:
    """Commands in code spans and code blocks; a block's line that goes on in the next is joined with it."""
    for span in _INLINE.finditer(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        if span[1].startswith("aisp "):
            yield span[1].replace("\n", " ")
    for block in _BLOCKS.finditer(text):
        for line in _LINE.finditer((block[1] or block[2]).replace("\\\n", " ")):
            yield line[1]


def problem(command: str) -> str | None:
    """Why the command line does not fit the CLI; None if it does. A placeholder or shell operator ends it."""
    try:
        words = shlex.split(re.sub(r"[\[\]]", "", command), comments=True)[1:]
    except ValueError as error:
        return str(error)
    words = list(takewhile(lambda word: not _END.match(word), words))
    if len(words) < 2 or any(tuple(words[: len(own)]) == own for own in OWN):
        return None
    try:
        tool, rest = commands.find(words)
        raw, _ = arguments.parse(tool, [word for word in rest if word not in ("--help", "-h")])
    except AispError as error:
        return error.message
    unknown = set(raw) - set(input_schema(tool).get("properties", {}))
    return f"unknown: {', '.join(sorted(unknown))}" if unknown else None


def test_every_named_command_is_understood(home: Path) -> None:
    commands = [(name, command) for name, text in texts() for command in named(text)]
    wrong = [f"{name}: {command}: {why}" for name, command in commands if (why := problem(command))]
    assert len(commands) > 300
    assert wrong == []


@pytest.mark.parametrize("command", ["aisp bench utils kv-cache", "aisp bench runn x", "aisp bench run --sizes 3 ch07"])
def test_a_wrong_command_is_noticed(command: str, ctx: Context) -> None:
    assert problem(command)
