"""Points for scaling fits: given by the caller, or from stored runs of one program at several sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.runs import stored
from aisp_mcp.runs.analysis import scaling
from aisp_mcp.runs.analysis.scaling import Scaling
from aisp_mcp.runs.analysis.variants import BROKEN, machine
from aisp_mcp.server.context import Context

_LEAST, _MOST = 1e-12, 1e15  # beyond this, the fit's squares overflow
_EXAMPLE = "aisp bench scaling --n 1 2 4 8 --throughput 100 190 350 600"


def given(n: Sequence[float], throughput: Sequence[float], time_s: Sequence[float]) -> Scaling:
    """A fit over workers. Raises UsageError BAD_POINTS."""
    if bool(throughput) == bool(time_s) or len(n) != len(throughput or time_s):
        raise UsageError("BAD_POINTS", "Give n, and throughput or time_s, of equal length.", _EXAMPLE)
    every = [*n, *throughput, *time_s]
    if min(every) <= 0 or len(set(n)) < 2:
        raise UsageError("BAD_POINTS", "A fit needs positive values at two different n at least.", _EXAMPLE)
    if min(every) < _LEAST or max(every) > _MOST:
        raise UsageError("BAD_POINTS", f"Values must be between {_LEAST:g} and {_MOST:g}.", _EXAMPLE)
    rates = throughput or [1 / seconds for seconds in time_s]
    try:
        return scaling.over_workers("given", list(zip(n, rates, strict=True)))
    except (OverflowError, ZeroDivisionError) as error:
        text = f"No law fits points that are so far apart: {error}."
        raise UsageError("BAD_POINTS", text, _EXAMPLE) from None


def of_runs(ctx: Context, run_id: str | None, limit: int, target: str | None) -> list[Scaling]:
    """A power law for every program with two sizes on one machine. Raises Unavailable NO_SWEEP, NOTHING_STORED."""
    times: dict[str, dict[float, float]] = defaultdict(dict)
    for run in stored.runs(ctx, run_id, limit):
        for comparison in run.comparisons:
            size = stored.elements(comparison)
            if size is None or comparison.verdict in BROKEN or target not in (None, comparison.target):
                continue
            for name, figures in stored.programs(comparison):
                # Newest first: an older measurement of the same size is ignored.
                times[f"{name} on {machine(run)}"].setdefault(size, figures.time_s)
    scalings = [scaling.over_sizes(label, list(at.items())) for label, at in times.items() if len(at) >= 2]
    if not scalings:
        raise Unavailable(
            "NO_SWEEP",
            "No program is stored at two sizes on one machine.",
            f"Measure it at several sizes, or give the points of a sweep over workers: {_EXAMPLE}",
            [("aisp_hw_nccl", {}), ("aisp_analyze_scaling", {"n": [1, 2, 4], "throughput": [1.0, 1.9, 3.4]})],
        )
    return scalings
