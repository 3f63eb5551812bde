"""Addresses of pages: a query string on the server, a file name in a static site."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlencode

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
