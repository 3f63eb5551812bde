"""Verdicts that match a filter, newest first, page by page."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, summed
from aisp_mcp.front.rest.filters import parse

PAGE = 50


def build(request: PageRequest) -> dict[str, Any]:
    """?q= filter, ?cursor= from the previous page. Raises UsageError BAD_FILTER."""
    cursor, ctx = request.word("cursor"), request.ctx
    matching = parse(request.word("q"))
    rows, more = ctx.store.list_verdicts(matching, PAGE, int(cursor) if cursor.isdecimal() else None, ctx.sees)
    counts = ctx.store.count_verdicts(matching, ctx.sees)
    condition = " match the filter" if request.word("q") else ""
    lead = f"{count(sum(counts.values()), 'verdict')}{condition}: {summed(counts)}." if counts else ""
    drawing = figures.of_counts(counts)
    return {"rows": rows, "more": more, "q": request.word("q"), "lead": lead, "counts": counts, "drawing": drawing}
