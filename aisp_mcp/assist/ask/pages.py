"""Concept pages and the documentation.

A concept is one Markdown file in concepts/, with a title, keywords, a definition and fixed sections. The documentation
is readable at run time in the checkout, or copied into the installed package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from aisp_mcp.errors import NotFound

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


_PACKAGE = Path(__file__).parents[2]
PATTERNS = ("*.md", "tools/*.md")  # as in setup.py; decisions are for readers of the repository
_TITLE = re.compile(r"^# +(.+?) *$", re.MULTILINE)


@cache
def titles() -> dict[str, str]:
    """Page names, in alphabetical order, and the heading of each."""
    headings = {}
    for name, path in sorted(_files().items()):
        heading = _TITLE.search(path.read_text("utf-8"))
        headings[name] = heading[1] if heading else name
    return headings


def page(name: str) -> str:
    """One page as Markdown. Raises NotFound NO_SUCH_PAGE."""
    if name not in titles():
        raise NotFound("NO_SUCH_PAGE", f"There is no page {name[:80]!r}.", f"Pages: {', '.join(titles())}.")
    return _files()[name].read_text("utf-8")


def _files() -> dict[str, Path]:
    """Files by page name: a page in the folder is named by its stem; "tools" is tools/index.md."""
    folder = _folder()
    paths = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    return {path.relative_to(folder).with_suffix("").as_posix().removesuffix("/index"): path for path in paths}


def _folder() -> Path:
    """The folder of the pages: a built package contains a copy (setup.py), an editable install reads the checkout."""
    checkout = _PACKAGE.parent / "docs"
    return checkout if (checkout / "tools/index.md").is_file() else _PACKAGE / "_docs"
