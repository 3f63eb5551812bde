"""One target over time or commits: ratios with intervals, noise floor, and steps of the level."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.runs.history import Axis, history, name
from aisp_mcp.store.records.verdict_row import VerdictFilter

MOST = 300


def build(asked: Asked) -> dict[str, Any]:
    """?target=, with ?device= to choose one and ?axis=commit."""
    target, ctx = asked.word("target"), asked.ctx
    axis = Axis.COMMIT if asked.word("axis") == Axis.COMMIT else Axis.TIME
    wanted = VerdictFilter(target=target, device=asked.word("device") or None)
    rows, _ = ctx.store.list_verdicts(wanted, MOST, None, ctx.sees)
    series = history(rows, axis)
    drawn = [(one, figures.history(one)) for one in series]
    return {
        "target": target,
        "axis": axis.value,
        "axes": [one.value for one in Axis] if any(row.revision for row in rows) else [],
        "series": drawn,
        "rows": rows,
        "commit": name,
    }
