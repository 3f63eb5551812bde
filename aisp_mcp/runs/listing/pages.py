"""Pages of stored runs."""

from __future__ import annotations

from collections import Counter

from aisp_mcp.judge.records.run import Run
from aisp_mcp.runs.listing.records import RunLine, RunPage
from aisp_mcp.server.context import Context

BLOCK = 100  # runs read at a time
MOST = 2000  # runs looked at for one page


def line(run: Run) -> RunLine:
    """A run in a line."""
    counts = Counter(comparison.verdict.value for comparison in run.comparisons)
    counts += Counter(skipped=len(run.skipped), failed=len(run.failed))
    unmeasured = [*(failure.target for failure in run.failed), *(skip.target for skip in run.skipped)]
    names = [comparison.label for comparison in run.comparisons] or unmeasured
    more = str(shown[-1][1]) if len(found) > limit else None
    return RunPage(runs=[row for row, _ in shown], next_cursor=more)


def _matches(run: Run, tag: str | None, query: str | None) -> bool:
    if tag is not None and tag not in run.tags:
        return False
    texts = [run.name, run.note, *(comparison.label for comparison in run.comparisons)]
    return query is None or any(query.casefold() in text.casefold() for text in texts)
