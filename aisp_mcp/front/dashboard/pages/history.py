"""One target over time or commits: ratios with intervals, noise floor, and changes of the level."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.runs.history import Axis, history, name
from aisp_mcp.store.records.ruling import RulingFilter

MAX_VERDICTS = 300


def build(request: PageRequest) -> dict[str, Any]:
    """?target=, optionally ?device= and ?axis=commit."""
    target, ctx = request.word("target"), request.ctx
    axis = Axis.COMMIT if request.word("axis") == Axis.COMMIT else Axis.TIME
    matching = RulingFilter(target=target, device=request.word("device") or None)
    rows, _ = ctx.store.list_rulings(matching, MAX_VERDICTS, None, ctx.sees)
    return {
        "target": target,
        "axis": axis.value,
        "axes": [axis.value for axis in Axis] if any(row.revision for row in rows) else [],
        "series": [(series, figures.history(series)) for series in history(rows, axis)],
        "rows": rows,
        "commit": name,
    }
