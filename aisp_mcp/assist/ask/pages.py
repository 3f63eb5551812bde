"""The documentation, where it can be read at run time: in the checkout, or copied into the installed package."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from aisp_mcp.errors import NotFound

_PACKAGE = Path(__file__).parents[2]
_TITLE = re.compile(r"^# +(.+?) *$", re.MULTILINE)


@cache
def titles() -> dict[str, str]:
    """Page names, in alphabetical order, and the heading of each."""
    found = {}
    for path in sorted(_folder().glob("*.md")):
        heading = _TITLE.search(path.read_text("utf-8"))
        found[path.stem] = heading[1] if heading else path.stem
    return found


def page(name: str) -> str:
    """One page as Markdown. Raises NotFound NO_SUCH_PAGE."""
    if name not in titles():
        raise NotFound("NO_SUCH_PAGE", f"There is no page {name[:80]!r}.", f"Pages: {', '.join(titles())}.")
    return (_folder() / f"{name}.md").read_text("utf-8")


def _folder() -> Path:
    """As the suites: a built package carries a copy (setup.py), an editable install reads the checkout."""
    checkout = _PACKAGE.parent / "docs"
    return checkout if (checkout / "tools.md").is_file() else _PACKAGE / "_docs"
