"""Sphinx configuration of the documentation site (`make docs`).

The source folder is the root of the repository, so that links between pages work on the site as they do on GitHub, also
links that leave docs/. A link to any other file becomes a download of that file. Nothing is fetched from the network.
Navigation follows the index pages: a page that no index links to is a warning, and warnings are errors.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
# Pages whose links are the navigation, and pages below them that they do not link to one by one.
INDEXES: dict[str, tuple[str, ...]] = {
    "docs/index": (),
    "docs/tools/index": (),
    "docs/decisions/README": (),
    "docs/benchmarks": ("benchmarks/*/README", "labs/README", "labs/*/README"),
    "docs/skills": ("aisp_mcp/assist/skills/skills/*/SKILL", "aisp_mcp/assist/skills/skills/*/references/*"),
}
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
CONTENT = ("benchmarks", "labs", "results")
SKILLS = "aisp_mcp/assist/skills/skills/"
DATA = "aisp_mcp/validity/"  # Markdown that is data of the package, not a page of the site
HEADING = re.compile(r"^## +(.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+)\.md(?:#[^)]*)?\)")
PATH_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)\)")

project = "aisp"
copyright = "the aisp contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = [*ROOT_PAGES, "docs/**.md", *(f"{folder}/**README.md" for folder in CONTENT), f"{SKILLS}**.md"]
exclude_patterns = [
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in {"docs", "aisp_mcp", *CONTENT}
]
myst_heading_anchors = 4  # as on GitHub
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
toc_object_entries_show_parents = "hide"
html_theme = "furo"
html_title = "aisp"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]  # leads from the site's root to docs/
html_copy_source = False


def add_navigation(_: Sphinx, docname: str, source: list[str]) -> None:
    """Append a hidden table of contents to an index: its links, below the headings they stand under."""
    if docname not in INDEXES:
        return
    heading, *sections = HEADING.split(source[0])
    captions = ["", *sections[::2]]
    listed = {docname}
    for caption, text in zip(captions, [heading, *sections[1::2]], strict=True):
        entries = []
        for title, target in LINK.findall(text):
            page = normpath(PurePosixPath(docname).parent / target)
            if page not in listed:
                listed.add(page)
                entries.append(f"{title} </{page}>" if docname == "docs/tools/index" else f"/{page}")
        source[0] += _toctree(caption if docname == root_doc else "", entries)
    source[0] += _toctree("", [f"/{pattern}" for pattern in INDEXES[docname]])


def _toctree(caption: str, entries: list[str]) -> str:
    if not entries:
        return ""
    options = [":hidden:", ":glob:", *([f":caption: {caption}"] if caption else [])]
    return "\n\n" + "\n".join(["```{toctree}", *options, "", *entries, "```"]) + "\n"


def replace_links(_: Sphinx, docname: str, source: list[str]) -> None:
    """Links to folders become text, and links to data downloads: the site has no page for them."""

    def replaced(link: re.Match[str]) -> str:
        path = normpath(PurePosixPath(docname).parent / link[2])
        if path.startswith(DATA) and path.endswith(".md"):
            return f"{{download}}`{link[1]} </{path}>`"
        return link[1] if (ROOT / path).is_dir() else link[0]

    source[0] = PATH_LINK.sub(replaced, source[0])


def read_markdown_code(_: Sphinx, *details: object) -> None:
    """Docstrings name code in single backticks, as Markdown does; reStructuredText wants two."""
    lines = details[-1]
    assert isinstance(lines, list)
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?![`_])", r"``\1``", line).replace("**", r"\**") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_lexer("mermaid", TextLexer)  # drawn on GitHub; here it is text, since nothing is fetched
    app.connect("source-read", add_navigation)
    app.connect("source-read", replace_links)
    app.connect("autodoc-process-docstring", read_markdown_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
