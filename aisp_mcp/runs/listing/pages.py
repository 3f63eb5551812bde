"""Pages of stored runs."""

from __future__ import annotations

from collections import Counter

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.listing.records import RunLine, RunPage
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

BLOCK = 100  # runs read at a time
MOST = 2000  # runs to search for one page


def line(run: Run) -> RunLine:
    counts = Counter(_word(run, comparison) for comparison in run.comparisons)
    counts += Counter(skipped=len(run.skipped), failed=len(run.failed))
    unmeasured = [*(failure.target for failure in run.failed), *(skip.target for skip in run.skipped)]
    names = [comparison.known_as for comparison in run.comparisons] or unmeasured
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    commits = f"{run.commits['base'][:10]}..{run.commits['head'][:12]}: " if run.commits else ""
    return RunLine(
        run_id=run.id,
        name=run.name,
        created_at=run.created_at,
        kind=run.kind.value,
        targets=commits + ", ".join(names[:3]) + more,
        verdicts=", ".join(f"{count} {word}" for word, count in counts.items()),
        preset=run.preset,
        tags=run.tags,
        note=run.note,
    )


def _word(run: Run, comparison: Comparison) -> str:
    """The outcome of a gate after all its looks, else the verdict."""
    if outcome := comparison.disclosed.get("outcome"):
        return str(outcome).replace("_", " ")
    return numbers.verdict(comparison.verdict.value, run.is_provisional(comparison))


def page(
    ctx: Context, tag: str | None, query: str | None, limit: int, cursor: int | None, kind: RunKind | None = None
) -> RunPage:
    """The newest matching runs that this caller may see, after the cursor."""
    matching: list[tuple[RunLine, int]] = []
    count, before = 0, cursor
    while len(matching) <= limit and count < MOST:
        block = ctx.store.newest_runs(Run, BLOCK, before, ctx.sees)
        if not block:
            break
        count, before = count + len(block), block[-1][1]
        matching += [(line(run), seq) for run, seq in block if kind in (None, run.kind) and _matches(run, tag, query)]
    shown = matching[:limit]
    more = str(shown[-1][1]) if len(matching) > limit else None
    narrowed = cursor is not None or not (tag is None and query is None and kind is None)
    sentence = _sentence(len(shown), narrowed, more is not None)
    return RunPage(sentence=sentence, runs=[row for row, _ in shown], next_cursor=more)


def _sentence(count: int, narrowed: bool, more: bool) -> str:
    if not count:
        return "No stored run matches." if narrowed else "No run is stored yet: aisp bench run ch01 stores one."
    runs = f"{count} run{'s' if count > 1 else ''}"
    return f"{runs}, newest first; {'older ones follow' if more else 'there are no others that match'}."


def _matches(run: Run, tag: str | None, query: str | None) -> bool:
    if tag is not None and tag not in run.tags:
        return False
    texts = [run.name, run.note, *(comparison.known_as for comparison in run.comparisons)]
    return query is None or any(query.casefold() in text.casefold() for text in texts)
