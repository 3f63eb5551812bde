"""All verdicts, newest first, by filter and page."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.front.rest.filters import parse

PAGE = 50


def build(asked: Asked) -> dict[str, Any]:
    """?q= filter, ?cursor= of the page before. Raises UsageError BAD_FILTER."""
    cursor, ctx = asked.word("cursor"), asked.ctx
    wanted = parse(asked.word("q"))
    rows, more = ctx.store.list_verdicts(wanted, PAGE, int(cursor) if cursor.isdecimal() else None, ctx.sees)
    return {"rows": rows, "more": more, "q": asked.word("q")}
