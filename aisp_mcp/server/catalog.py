"""The shipped tools without an import of a feature: their source text, and the generated list that a model sees."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import aisp_mcp

_TOOL = re.compile(r'^@tool\((.*?)^def \w+\(.*?"""(.*?)(?:\n|""")', re.DOTALL | re.MULTILINE)
_CLI = re.compile(r'\bcli="([^"]+)"')


class Command(NamedTuple):
    """Words of a command, and the first line of what its tool says of itself."""

    cli: str
    summary: str


class ListedTool(NamedTuple):
    """A tool of the default list. listed: the smallest set that lists it; entry: what tools/list says of it."""

    family: str
    name: str
    listed: str
    entry: dict[str, Any]


@functools.cache
def listed_tools() -> list[ListedTool]:
    """The shipped tools of the default list by family and name, from listed.json, which tools/gen.py writes.

    Importing the families and building their schemas would be a third of a server's start.
    """
    return [ListedTool(**row) for row in json.loads(Path(__file__).with_name("listed.json").read_bytes())]


@functools.cache
def sources() -> dict[str, str]:
    """Source text of every feature's tools.py by its module's name."""
    package = Path(aisp_mcp.__file__).parent
    files = sorted([*package.glob("*/tools.py"), *package.glob("*/*/tools.py")])
    texts = {
        ".".join(("aisp_mcp", *file.relative_to(package).with_suffix("").parts)): file.read_text("utf-8")
        for file in files
    }
    return {module: text for module, text in texts.items() if "\n@tool(" in text}


def commands() -> list[Command]:
    """The commands of all shipped tools, sorted."""
    tools = [found for text in sources().values() for found in _TOOL.findall(text)]
    return sorted(Command(cli[1], summary) for head, summary in tools if (cli := _CLI.search(head)))
