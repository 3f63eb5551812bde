"""A request to a page: words of the address, what the browser keeps, and tools to answer with."""

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
    """A tool's result as data, or its error; never both."""

    tool: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True)
class Asked:
    """query: the address's words. bench_root, theme: from the browser. may_run: forms may start and cancel jobs.

    static: the page becomes a file, without forms.
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
        """The answer of a tool that reads, whole. Never raises."""
        return answered(name, dispatch.execute(name, arguments, self.ctx))


def answered(tool: str, envelope: Envelope) -> Answer:
    """The envelope's two ends as data."""
    data = dispatch.to_data(envelope)
    if envelope.error is not None:
        return Answer(tool, error=data["error"])
    result = data.get("result")
    return Answer(tool, result=result if isinstance(result, dict) else {"answer": result})
