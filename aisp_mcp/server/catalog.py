"""The shipped tools as their source text states them: a list of commands needs no import of a feature."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

import aisp_mcp

_TOOL = re.compile(r'^@tool\((.*?)^def \w+\(.*?"""(.*?)(?:\n|""")', re.DOTALL | re.MULTILINE)
_CLI = re.compile(r'\bcli="([^"]+)"')


class Command(NamedTuple):
    """Words of a command, and the first line of what its tool says of itself."""

    cli: str
    summary: str


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
