"""The page that shows drawings inside an MCP client: one file, one script, nothing fetched.

The page gets its drawings from the client by postMessage (MCP Apps, SEP-1865) and puts their shapes into the document;
all layout was done in `charts/`. Its policy names the hashes of its one script and its one style sheet, so nothing else
can run even where the client allows it.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template

from aisp_mcp import __version__
from aisp_mcp.server.charts import drawing


def page() -> str:
    """The page as HTML; always the same text for one version."""
    script, style = _read("view.js"), _read("view.css") + drawing.style()
    return Template(_read("view.html")).substitute(
        version=__version__, script=script, style=style, script_hash=_hash(script), style_hash=_hash(style)
    )


def _read(name: str) -> str:
    return (files("aisp_mcp.front.mcp") / "templates" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
