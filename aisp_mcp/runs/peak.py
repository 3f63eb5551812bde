"""The share of the machine's measured ceiling that a candidate reaches; a share above 1 asks for an audit."""

from __future__ import annotations

from aisp_mcp.judge.records.verdict import Comparison, Flag, PeakShare
from aisp_mcp.machine.datasheets import load
from aisp_mcp.profile import roofline
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.ceiling import Ceiling
from aisp_mcp.store.records.run import Run
from aisp_mcp.system import cpu

BEYOND_CACHE = 4  # a call that moves this many times the last-level cache is bound by memory bandwidth
AUDIT_FROM = 1.05  # a ceiling is itself measured, to a few per cent
_KINDS = ("copy", "read", "write", "triad")


def with_peaks(ctx: Context, run: Run) -> Run:
    """The run with each comparison's share of its ceiling, and a flag if more than the ceiling was reached."""
    return run.model_copy(update={"comparisons": [_placed(ctx, run, comparison) for comparison in run.comparisons]})


def _placed(ctx: Context, run: Run, comparison: Comparison) -> Comparison:
    share = ceiling(ctx, run, comparison)
    if share is None:
        return comparison
    flags = [*comparison.flags, _audit(share)] if share.share > AUDIT_FROM else comparison.flags
    return comparison.model_copy(update={"peak": share, "flags": flags})


def ceiling(ctx: Context, run: Run, comparison: Comparison) -> PeakShare | None:
    """The ceiling that limits this candidate most. None without declared work, a time, or a measured ceiling."""
    figures = comparison.optimized
    if figures is None:
        return None
    key = str(run.gpus[0].get("uuid")) if run.gpus else "cpu"
    shares = []
    product = _best(ctx, [f"gemm_{unit}" for unit in _types(comparison)], key)
    memory = _best(ctx, [f"bandwidth_{kind}" for kind in _KINDS], key)
    rate, moved = figures.flops_per_s or 0.0, figures.bytes_per_s or 0.0
    beyond = moved * figures.time_s > BEYOND_CACHE * _cache_bytes(run.gpus)
    if memory and moved and beyond:
        shares.append(_share(memory.kind, moved, memory.value))
    if product and rate:
        share = _share(product.kind, rate, product.value)
        by_memory = memory is not None and rate * memory.value < moved * product.value
        if beyond or not by_memory or share.share > AUDIT_FROM:  # else caches, which have no ceiling, are the limit
            shares.append(share)
    return max(shares, key=lambda each: each.share, default=None)


def _types(comparison: Comparison) -> list[str]:
    """The type of the inputs; every type if the contract allows an approximation, so that narrower ones are fair."""
    if comparison.verification is not None and comparison.verification.oracle == "approximate":
        return list(dict.fromkeys(roofline.UNITS.values()))
    unit = roofline.dtype(comparison)
    return [unit] if unit else []


def _best(ctx: Context, kinds: list[str], key: str) -> Ceiling | None:
    """The highest ceiling of these kinds that was measured on the device."""
    ceilings = [best for kind in kinds if (best := ctx.store.best_measurement(kind, key))]
    return max(ceilings, key=lambda each: each.value, default=None)


def _share(kind: str, rate: float, most: float) -> PeakShare:
    return PeakShare(kind=kind, share=rate / most, rate=rate, ceiling=most)


def _cache_bytes(gpus: list[dict[str, object]]) -> float:
    """Bytes of the last cache before memory; infinite if unknown, so that memory bandwidth does not count
    as a bound.
    """
    if gpus:
        facts = load.gpu(str(gpus[0].get("name")))
        return facts.l2_bytes if facts is not None and facts.l2_bytes else float("inf")
    sizes = [cache.size_bytes for cache in cpu.read().caches if cache.size_bytes]
    return max(sizes, default=float("inf"))


def _audit(peak_share: PeakShare) -> Flag:
    message = (
        f"{peak_share.share:.0%} of the best {peak_share.kind} measured on this machine: "
        "more than it can do, or more work declared than done. Measure the ceiling again on the idle machine "
        "(aisp_bench_peak), then audit work(), the tolerance and the candidate."
    )
    return Flag(code="above_ceiling", severity="warn", message=message, evidence=peak_share.model_dump())
