"""A stored run under the roofline: the declared work of its benchmarks, the times of its verdicts, the
device's roofs.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.machine.datasheets import load
from aisp_mcp.profile.roofline.kernel_roofline import Point, at
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.system import cpu

CONVENTION = (
    "FLOP and bytes: what Benchmark.work() declares as the least a call must do, over the time that the verdict uses. "
    "Roof: dense peak of the inputs' type; float32 that runs as TF32 may pass the plain cores' peak."
)
UNITS = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "int8": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
Roofs = tuple[float | None, float | None, list[str]]


def points(ctx: Context, run: Run) -> tuple[list[Point], list[str], list[str]]:
    """Points of both programs, the sources of the roofs, and programs without a time or declared work."""
    all_points: list[Point] = []
    sources: list[str] = []
    without: list[str] = []
    seen: set[str] = set()
    for comparison in run.comparisons:
        unit = dtype(comparison)
        peak, bandwidth, origin = _roofs(ctx, run, comparison, unit)
        sources += [text for text in origin if text not in sources]
        for label, figures in _programs(comparison):
            if label in seen:
                continue
            seen.add(label)
            if figures is not None and (figures.flops_per_s or figures.bytes_per_s):
                rates = (figures.flops_per_s or 0.0, figures.bytes_per_s or 0.0)
                all_points.append(at(len(all_points), label, unit or "unknown type", rates, (peak, bandwidth)))
            else:
                without.append(label)
    return all_points, sources, without


def _programs(comparison: Comparison) -> list[tuple[str, Figures | None]]:
    return [
        (f"{comparison.target} baseline", comparison.baseline),
        (f"{comparison.label} candidate", comparison.optimized),
    ]


def dtype(comparison: Comparison) -> str | None:
    """The type of the largest floating-point or integer input, None without a readable log."""
    types = tensors(comparison, "params", "inputs")
    return UNITS.get(max(types, key=lambda tensor: tensor[1] * tensor[2])[0]) if types else None


def tensors(comparison: Comparison, *kinds: str) -> list[tuple[str, int, int]]:
    """(type, elements, bytes per element) of the inputs, from the log; none without a readable log."""
    try:
        with Path(comparison.log_path or "").open(encoding="utf-8") as lines:
            layout = json.loads(next(lines))["opened"]["layout"]
        return [(t["dtype"], math.prod(t["shape"]), t["itemsize"]) for kind in kinds for t in layout[kind]]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return []


def _roofs(ctx: Context, run: Run, comparison: Comparison, unit: str | None) -> Roofs:
    """Peak FLOP/s, bytes/s and their sources: of the datasheet on a GPU, the best measured here on this CPU."""
    if run.gpus:
        return _datasheet(str(run.gpus[0].get("name")), unit)
    if run.host.get("cpu") != cpu.read().model:
        return (
            None,
            None,
            [f"{comparison.target}: the run is of another processor: no ceiling of this machine applies."],
        )
    product = ctx.store.best_measurement(f"gemm_{unit}", "cpu") if unit else None
    kinds = [ctx.store.best_measurement(f"bandwidth_{kind}", "cpu") for kind in ("copy", "read", "write")]
    bandwidth = max((kind for kind in kinds if kind), key=lambda kind: kind.value, default=None)
    origins = [
        f"{seen.kind}: {numbers.quantity(seen.value, seen.unit)}, best measured here, "
        + time.strftime("%Y-%m-%d", time.gmtime(seen.measured_at))
        for seen in (product, bandwidth)
        if seen
    ]
    if product is None or bandwidth is None:
        origins.append("No roof without a measurement: aisp_bench_peak stores this machine's ceilings.")
    return product.value if product else None, bandwidth.value if bandwidth else None, origins


def _datasheet(name: str, unit: str | None) -> Roofs:
    facts = load.gpu(name)
    if facts is None:
        return None, None, [f"{name[:80]!r} is not in the table of GPU facts: no roof is given."]
    peak = facts.peak.get(unit or "")
    origin = f"datasheet, dense, {facts.sku}, {facts.checked}, confidence {facts.confidence}"
    return peak.dense * 1e12 if peak else None, facts.memory.bandwidth_bytes_s, [origin]
