"""Scaling over workers (Amdahl, USL) or over problem sizes (power law), with the law that predicts unseen points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.records import Record
from aisp_mcp.runs import stored
from aisp_mcp.runs.analysis import fits
from aisp_mcp.runs.analysis.fits import Fit
from aisp_mcp.runs.analysis.variants import BROKEN, machine
from aisp_mcp.server.context import Context

Over = Literal["workers", "size"]
EXACT, CLEARLY = 1e-6, 0.9  # smaller errors count as zero; another law must be better by this factor
DEFINITIONS = {
    "workers": "Throughput over workers (GPUs, ranks, threads). efficiency = X(n) / (n X(1)) by the fitted X(1).",
    "size": "Seconds per call over elements of the largest input. exponent 1 is linear in size.",
}


class Scaling(Record):
    """Measured points, every law that fits them, and the law with the smallest error on points it was not fitted to."""

    label: str
    over: Over
    points: list[tuple[float, float]] = Field(description="(n, throughput) over workers, (n, seconds) over sizes.")
    fits: list[Fit]
    best: str = Field(description="The simplest law, unless another predicts left-out points clearly better.")
    efficiency: list[float] = Field(default_factory=list, description="Over workers: share of linear scaling.")
    sentence: str


def over_workers(label: str, points: Sequence[tuple[float, float]]) -> Scaling:
    """Fit points (workers, throughput). Raises ValueError with fewer than 2 different counts."""
    ordered = sorted(points)
    candidates = [fits.amdahl(ordered)]
    if len({n for n, _ in ordered}) >= 3:
        candidates.append(fits.usl(ordered))
    best = _best(candidates)
    rate = best.parameters["rate_1"]
    return Scaling(
        label=label,
        over="workers",
        points=ordered,
        fits=candidates,
        best=best.law,
        efficiency=[round(x / (n * rate), 4) for n, x in ordered],
        sentence=_sentence(best, ordered[-1][0]),
    )


def over_sizes(label: str, points: Sequence[tuple[float, float]]) -> Scaling:
    """Fit points (elements, seconds). Raises ValueError with fewer than 2 different sizes."""
    fit = fits.power(sorted(points))
    sentence = f"time grows as size^{fit.parameters['exponent']:.3g}, RMS error {100 * fit.rms_error:.2g} %"
    return Scaling(label=label, over="size", points=sorted(points), fits=[fit], best=fit.law, sentence=sentence)


def _best(candidates: Sequence[Fit]) -> Fit:
    """The best law. Candidates come with the simplest first; another one must predict unseen points clearly better."""
    best = candidates[0]
    for fit in candidates[1:]:
        if fit.left_out_error is None or best.left_out_error is None:
            continue
        if best.left_out_error > EXACT and fit.left_out_error < CLEARLY * best.left_out_error:
            best = fit
    return best


def _sentence(fit: Fit, largest: float) -> str:
    error = f"RMS error {100 * fit.rms_error:.2g} %"
    if fit.law == "amdahl":
        serial = fit.parameters["serial_fraction"]
        limit = f"at most {1 / serial:.3g}x with any number of workers" if serial > 0 else "no serial part seen"
        return f"amdahl: serial fraction {100 * serial:.3g} %, {limit}, {error}"
    peak = f"throughput peaks at {fit.at_best:.3g} workers" if fit.at_best else "no peak"
    beyond = ", beyond the measured counts" if fit.at_best and fit.at_best > largest else ""
    a, b = fit.parameters["contention"], fit.parameters["coherency"]
    return f"usl: contention {a:.3g}, coherency {b:.3g}, {peak}{beyond}, {error}"


# --- points for scaling fits: given by the caller, or from stored runs of one program at several sizes


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
        return over_workers("given", list(zip(n, rates, strict=True)))
    except (OverflowError, ZeroDivisionError) as error:
        text = f"No law fits points this far apart: {error}."
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
    scalings = [over_sizes(label, list(at.items())) for label, at in times.items() if len(at) >= 2]
    if not scalings:
        raise Unavailable(
            "NO_SWEEP",
            "No program is stored at two sizes on one machine.",
            f"Measure it at several sizes, or give the points of a sweep over workers: {_EXAMPLE}",
            [("aisp_hw_nccl", {}), ("aisp_analyze_scaling", {"n": [1, 2, 4], "throughput": [1.0, 1.9, 3.4]})],
        )
    return scalings
