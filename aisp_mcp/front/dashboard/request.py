"""A request to a page: its query, the browser's settings, and access to the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.envelope import Envelope
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context

THEMES = ("auto", "light", "dark")


@dataclass(frozen=True)
class Answer:
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

    def tool(self, name: str, **arguments: Any) -> Answer:
        """Run a read-only tool and return its unshortened answer. Never raises."""
        return answer_from(name, dispatch.execute(name, arguments, self.ctx))


def answer_from(tool: str, envelope: Envelope) -> Answer:
    """Return the result or the error of an envelope."""
    data = dispatch.to_data(envelope)
    if envelope.error is not None:
        return Answer(tool, error=data["error"])
    result = data.get("result")
    return Answer(tool, result=result if isinstance(result, dict) else {"answer": result})
