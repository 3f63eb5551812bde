"""A request to a page: its query, the browser's settings, and access to the tools; and addresses of other pages.

An address is a path with a query on the server, and a file name in a static site.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

from aisp_mcp.envelope import Envelope
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context

THEMES = ("auto", "light", "dark")


@dataclass(frozen=True)
class ToolAnswer:
    """A tool's result or its error, as JSON data; never both."""

    tool: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True)
class PageRequest:
    """A request to a page.

    query: parameters of the address. bench_root, theme: the browser's settings. may_run: forms may start and cancel
    jobs. static: the page is exported as a file, without forms.
    """

    ctx: Context
    query: Mapping[str, str] = field(default_factory=dict)
    bench_root: str | None = None
    theme: str = "auto"
    may_run: bool = False
    static: bool = False

    def word(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def tool(self, name: str, **arguments: Any) -> ToolAnswer:
        """Run a read-only tool and return its unshortened answer. Never raises."""
        return answer_from(name, dispatch.execute(name, arguments, self.ctx))


def answer_from(tool: str, envelope: Envelope) -> ToolAnswer:
    data = dispatch.to_data(envelope)
    if envelope.error is not None:
        return ToolAnswer(tool, error=data["error"])
    result = data.get("result")
    return ToolAnswer(tool, result=result if isinstance(result, dict) else {"answer": result})


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
Query = tuple[tuple[str, str], ...]


class Links(Protocol):
    """Addresses of other pages, for templates."""

    def to(self, page: str, **query: object) -> str | None:
        """Return the address of a page, or None if there is no such page and the text gets no link."""
        ...

    def file(self, name: str) -> str:
        """Return the address of a file of static/."""
        ...


class ServedLinks:
    """Addresses of the running server."""

    def to(self, page: str, **query: object) -> str | None:
        """Return `/run?id=…`, without empty parameters."""
        text = urlencode(_nonempty(query))
        return f"/{'' if page == 'overview' else page}{'?' if text else ''}{text}"

    def file(self, name: str) -> str:
        return f"/static/{name}"


class FileLinks:
    """Names of files in one folder. names: those of the pages linked so far, by page and query."""

    def __init__(self, pages: frozenset[str], max_files: int) -> None:
        """pages: those that can be exported. max_files: beyond it only pages without a query are linked."""
        self._pages, self._max_files = pages, max_files
        self.names: dict[tuple[str, Query], str] = {}

    def to(self, page: str, **query: object) -> str | None:
        """Return a name such as `run-r_1.html`, in the same folder."""
        key = (page, _nonempty(query))
        if key not in self.names:
            if page not in self._pages or (query and len(self.names) >= self._max_files):
                return None
            self.names[key] = _file_name(*key)
        return self.names[key]

    def file(self, name: str) -> str:
        return f"static/{name}"


def _nonempty(query: Mapping[str, object]) -> Query:
    return tuple((name, str(value)) for name, value in query.items() if value not in (None, "", False))


def _file_name(page: str, query: Query) -> str:
    """A readable name for a single plain value; else a digest, since other values must not become file names."""
    if not query:
        return "index.html" if page == "overview" else f"{page}.html"
    value = query[0][1]
    if len(query) == 1 and _PLAIN.fullmatch(value):
        return f"{page}-{value}.html"
    return f"{page}-{hashlib.sha256(repr(query).encode()).hexdigest()[:16]}.html"
