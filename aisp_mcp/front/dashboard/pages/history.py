"""One target over time or commits: ratios with intervals, noise floor, and changes of the level."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count
from aisp_mcp.runs.history import Axis, Series, history, name
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.verdict_row import OF_TARGETS, RunKind, VerdictFilter, VerdictRow

MAX_VERDICTS, MAX_RUNS = 300, 60
_CONTENT = re.compile(r"@[0-9a-f]{6}")  # of a function, in its target's name
_OTHERS = tuple(kind for kind in RunKind if kind not in OF_TARGETS)


def build(request: PageRequest) -> dict[str, Any]:
    """The history of ?target=, optionally on ?device= and ordered by ?axis=commit."""
    target, ctx = request.word("target"), request.ctx
    axis = Axis.COMMIT if request.word("axis") == Axis.COMMIT else Axis.TIME
    target = _known(request, target)
    matching = VerdictFilter(target=target, device=request.word("device") or None)
    rows, _ = ctx.store.list_verdicts(matching, MAX_VERDICTS, None, ctx.sees)
    others, _ = ctx.store.list_verdicts(matching.model_copy(update={"kinds": _OTHERS}), MAX_VERDICTS, None, ctx.sees)
    series = sorted(history(rows, axis), key=lambda group: -len(group.rulings))
    runs = [
        (
            row.run_id,
            f"{numbers.moment(row.created_at)[:16]}, {row.preset}: {numbers.ratio(row.ratio)} {name(row)}".strip(),
        )
        for row in rows[:MAX_RUNS]
    ]
    return {
        "lead": " ".join(map(_sentence, series[:2])) or _only(others),
        "target": target,
        "axis": axis.value,
        "axes": [axis.value for axis in Axis] if any(row.revision for row in rows) else [],
        "series": [(group, figures.history(group)) for group in series],
        "rows": rows,
        "others": others,
        "runs": runs,
        "commit": name,
    }


def _known(request: PageRequest, target: str) -> str:
    """The target; of a function that is named without its content, as a run names it, the newest one of that name."""
    functions = VerdictFilter(kinds=(RunKind.FUNCTIONS,), chapter=target.partition(":")[0])
    rows, _ = request.ctx.store.list_verdicts(functions, MAX_VERDICTS, None, request.ctx.sees)
    return next((row.target for row in rows if target == _CONTENT.sub("", row.target)), target)


def _only(others: Sequence[VerdictRow]) -> str:
    """The page's opening if no verdict is about the target itself."""
    return f"{count(len(others), 'verdict')} of gates, of your own candidates or of optimisations." if others else ""


def _sentence(series: Series) -> str:
    """The present level of a series, its start, and the level before."""
    newest, levels = series.rulings[-1:], series.levels
    if not newest:
        return ""
    row, device = newest[0], "an unknown device" if series.device == "unknown" else series.device
    ends = f" [{numbers.ratio(row.low)}, {numbers.ratio(row.high)}]" if row.low else ""
    text = f"{row.verdict.capitalize()} at {numbers.ratio(row.ratio)}{ends} on {device} ({series.preset})"
    if len(levels) < 2:
        return f"{text}, without a change of level in {count(len(series.rulings), 'run')}."
    first = series.rulings[levels[-1][0]]
    since = name(first) if series.commits else numbers.moment(first.created_at)[:10]
    now, earlier = (numbers.ratio(level) for _, _, level in (levels[-1], levels[-2]))
    return f"{text}; the level is {now} since {since} and was {earlier} before."
