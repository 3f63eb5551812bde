"""The documentation, if it is readable at run time: in the checkout, or copied into the installed package."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from aisp_mcp.errors import NotFound

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
