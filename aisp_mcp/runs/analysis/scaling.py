"""Scaling over workers (Amdahl, USL) or over problem sizes (power law), with the law that predicts unseen points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.analysis import fits
from aisp_mcp.runs.analysis.fits import Fit

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
