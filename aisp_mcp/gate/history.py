"""Times of a gate's benchmarks at earlier commits, from this store."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.gate.records import Point
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs import stored
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

RUNS, POINTS = 200, 8  # stored runs to search, and commits to show
LEVELS = "▁▂▃▄▅▆▇█"


def histories(ctx: Context, run: Run) -> dict[str, list[Point]]:
    """By target, the last commits before this gate's head, oldest first, as gates on this device measured them.

    A commit that was measured several times counts once, with its latest measurement.
    """
    earlier = [
        gate_run
        for gate_run in stored.runs(ctx, None, RUNS, (RunKind.GATE,))
        if gate_run.id != run.id and _is_alike(gate_run, run)
    ]
    by_target: dict[str, dict[str, Point]] = {}
    for gate_run in sorted([*earlier, run], key=lambda gate_run: gate_run.created_at):
        for comparison in gate_run.comparisons:
            points = by_target.setdefault(comparison.label, {})
            for commit, seconds in _measured(gate_run, comparison):
                points.pop(commit, None)
                points[commit] = Point(commit=commit, seconds=seconds)
    return {target: list(points.values())[-POINTS:] for target, points in by_target.items()}


def _is_alike(other: Run, run: Run) -> bool:
    """Return True for a gate with the same preset on the same device."""
    return bool(other.commits) and other.preset == run.preset and _device(other) == _device(run)


def _device(run: Run) -> str:
    return str((run.gpus or [{}])[0].get("name") or run.host.get("cpu"))


def _measured(run: Run, comparison: Comparison) -> list[tuple[str, float]]:
    """(commit, seconds per call) of both commits, base first."""
    commits = run.commits
    measured = ((commits["base"], comparison.baseline), (commits["head"], comparison.optimized))
    return [(commit, figures.time_s) for commit, figures in measured if figures is not None]


def sparkline(points: Sequence[Point]) -> str:
    """A bar for each point, the lowest for the shortest time; differences below 5 % stay small."""
    seconds = [point.seconds for point in points]
    low, high = min(seconds), max(seconds)
    span = max(high - low, 0.4 * low)
    return "".join(LEVELS[min(int((value - low) / span * len(LEVELS)), len(LEVELS) - 1)] for value in seconds)
