"""The page that shows charts inside an MCP client: one file that loads nothing from elsewhere.

It receives finished drawings from the client by postMessage (MCP Apps, SEP-1865); the layout is done in
`server/charts/`. Its security policy allows only its own script and style sheet, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template

from aisp_mcp import __version__
from aisp_mcp.server.charts import drawing


def page() -> str:
    """Return the page as HTML, identical for every call of one version."""
    script, style = _read("view.js"), _read("view.css") + drawing.style()
    return Template(_read("view.html")).substitute(
        version=__version__, script=script, style=style, script_hash=_hash(script), style_hash=_hash(style)
    )


def _read(name: str) -> str:
    return (files("aisp_mcp.front.mcp") / "templates" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
