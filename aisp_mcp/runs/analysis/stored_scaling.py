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

_EXAMPLE = "aisp bench scaling --n 1 2 4 8 --throughput 100 190 350 600"


def given(n: Sequence[float], throughput: Sequence[float], time_s: Sequence[float]) -> Scaling:
    """A fit over workers. Raises UsageError BAD_POINTS."""
    if bool(throughput) == bool(time_s) or len(n) != len(throughput or time_s):
        raise UsageError("BAD_POINTS", "Give n, and throughput or time_s, of equal length.", _EXAMPLE)
    if min([*n, *throughput, *time_s]) <= 0 or len(set(n)) < 2:
        raise UsageError("BAD_POINTS", "A fit needs positive values at two different n at least.", _EXAMPLE)
    rates = throughput or [1 / seconds for seconds in time_s]
    return scaling.over_workers("given", list(zip(n, rates, strict=True)))


def of_runs(ctx: Context, run_id: str | None, limit: int, target: str | None) -> list[Scaling]:
    """A power law for every program with two sizes on one machine. Raises Unavailable NO_SWEEP, NOTHING_STORED."""
    times: dict[str, dict[float, float]] = defaultdict(dict)
    for run in stored.runs(ctx, run_id, limit):
        for comparison in run.comparisons:
            size = stored.elements(comparison)
            if size is None or comparison.verdict in BROKEN or target not in (None, comparison.target):
                continue
            for name, side in stored.sides(comparison):
                # Newest first: an older measurement of the same size changes nothing.
                times[f"{name} on {machine(run)}"].setdefault(size, side.time_s)
    scalings = [scaling.over_sizes(label, list(at.items())) for label, at in times.items() if len(at) >= 2]
    if not scalings:
        raise Unavailable(
            "NO_SWEEP",
            "No program is stored at two sizes on one machine.",
            f"Measure it at several sizes, or give the points of a sweep over workers: {_EXAMPLE}",
            [("aisp_hw_nccl", {}), ("aisp_analyze_scaling", {"n": [1, 2, 4], "throughput": [1.0, 1.9, 3.4]})],
        )
    return scalings
