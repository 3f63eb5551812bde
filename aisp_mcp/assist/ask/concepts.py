"""Concept pages: one Markdown file each in concepts/, with a title, keywords, a definition and fixed sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_SECTION = re.compile(r"^## +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Concept:
    """One page. name: the file's, such as "kv-cache"; sections: heading to text, in order."""

    name: str
    title: str
    keywords: tuple[str, ...]
    definition: str
    sections: dict[str, str]
    sources: str

    @property
    def text(self) -> str:
        """The page without title, keywords and sources."""
        return "\n".join([self.definition, *(f"{head}: {body}" for head, body in self.sections.items())])

    @property
    def tools(self) -> list[str]:
        """Names of tools that the page mentions, in order."""
        return list(dict.fromkeys(re.findall(r"`(aisp_\w+)`", self.text)))


@cache
def concepts() -> dict[str, Concept]:
    """All pages by name. Raises ValueError for a page without title, keywords, definition or sources."""
    folder = resources.files("aisp_mcp.assist.ask") / "concepts"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".md")), key=lambda file: file.name)
    return {file.name[:-3]: _parse(file.name[:-3], file.read_text("utf-8")) for file in files}


def _parse(name: str, text: str) -> Concept:
    head, *rest = _SECTION.split(text)
    lines = head.strip().split("\n", 3)
    body, _, sources = (rest[-1] if rest else "").rpartition("\nSources: ")
    if len(lines) < 4 or not lines[0].startswith("# ") or not lines[1].startswith("Keywords: ") or not sources:
        raise ValueError(f"concept page {name} needs a title, keywords, a definition, a section and sources")
    bodies = [*rest[1:-1:2], body]
    return Concept(
        name=name,
        title=lines[0][2:].strip(),
        keywords=tuple(word.strip() for word in lines[1].removeprefix("Keywords: ").split(",")),
        definition=lines[3].strip(),
        sections={heading: body.strip() for heading, body in zip(rest[::2], bodies, strict=True)},
        sources=sources.strip(),
    )
