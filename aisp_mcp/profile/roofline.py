"""Kernels and stored runs under the roofline.

A kernel's position comes from the counters of its report, without a table of peaks. A run's comes from the declared
work of its benchmarks, the times of its verdicts, and the roofs measured on the device.
"""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.machine.datasheets import load
from aisp_mcp.profile.records import NcuKernel
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.system import cpu

CONVENTION = (
    "FLOP: executed, FMA = 2, by SASS counters and tensor-path counters. Bytes: device memory, read and written. "
    "Roofs: the report's own sustained peaks at the clocks of this launch."
)
_TENSOR = re.compile(
    r"sm__ops_path_tensor_op_\w+_src_(\w+?)_dst_\w+\.sum\.per_second|sm__ops_path_tensor_op_\w+_src_(\w+)\.sum\.per_second"
)
_SASS = (
    ("fp32", "ffma", ("fadd", 1), ("fmul", 1)),
    ("fp64", "dfma", ("dadd", 1), ("dmul", 1)),
    ("fp16", "hfma", ("hadd", 2), ("hmul", 2)),
)


class Point(Record):
    """One launch. Rates are per second; intensity is FLOP per byte of device memory."""

    id: int
    kernel: str
    unit: str
    flop_per_s: float
    bytes_per_s: float
    intensity: float | None
    peak_flop_per_s: float | None
    peak_bytes_per_s: float | None
    ridge: float | None
    of_roof: float | None
    side: str


def points(kernels: list[NcuKernel]) -> tuple[list[Point], list[int]]:
    """Points, and the ids of launches whose report lacks the counters (record with --set roofline or full)."""
    all_points, lacking = [], []
    for kernel in kernels:
        point = _point(kernel)
        if point is None:
            lacking.append(kernel.id)
        else:
            all_points.append(point)
    return all_points, lacking


def _point(kernel: NcuKernel) -> Point | None:
    moved, peak_bytes = _bytes(kernel)
    work = {**_sass(kernel), **_tensor(kernel)}
    if moved is None or not work:
        return None
    unit, (rate, peak) = max(work.items(), key=lambda item: item[1][0])
    return at(kernel.id, kernel.name, unit, (rate, moved), (peak, peak_bytes))


def at(
    number: int, name: str, unit: str, rates: tuple[float, float], peaks: tuple[float | None, float | None]
) -> Point:
    """Roofline position of (FLOP/s, bytes/s) under (peak FLOP/s, peak bytes/s); no ridge means an unknown limit."""
    (rate, moved), (peak, peak_bytes) = rates, peaks
    ridge = peak / peak_bytes if peak and peak_bytes else None
    intensity = rate / moved if moved else None
    if ridge is None or not (rate or moved):
        limit = "unknown"
    else:
        limit = "memory" if intensity is not None and intensity < ridge else "compute"
    return Point(
        id=number,
        kernel=name,
        unit=unit,
        flop_per_s=rate,
        bytes_per_s=moved,
        intensity=intensity,
        peak_flop_per_s=peak,
        peak_bytes_per_s=peak_bytes,
        ridge=ridge,
        of_roof=_share(rate, moved, peak, peak_bytes),
        side=limit,
    )


def _share(rate: float, moved: float, peak: float | None, peak_bytes: float | None) -> float | None:
    """Share of the roof at this intensity; of the only known roof, if the other is unknown."""
    shares = [done / limit for done, limit in ((rate, peak), (moved, peak_bytes)) if limit and done]
    return max(shares, default=None)


def _bytes(kernel: NcuKernel) -> tuple[float | None, float | None]:
    metrics = kernel.metrics
    moved = metrics.get("dram__bytes.sum.per_second")
    if moved is None and kernel.duration_ns:
        parts = [metrics.get(f"dram__bytes_{way}.sum") for way in ("read", "write")]
        moved = (
            sum(p for p in parts if p is not None) / (kernel.duration_ns * 1e-9)
            if any(p is not None for p in parts)
            else None
        )
    per_cycle, clock = metrics.get("dram__bytes.sum.peak_sustained"), metrics.get("dram__cycles_elapsed.avg.per_second")
    return moved, per_cycle * clock if per_cycle and clock else None


def _sass(kernel: NcuKernel) -> dict[str, tuple[float, float | None]]:
    """FLOP/s and its peak of the plain cores, per type."""
    by_name: dict[str, tuple[float, float | None]] = {}
    clock = kernel.metrics.get("smsp__cycles_elapsed.avg.per_second")
    sm_clock = kernel.metrics.get("sm__cycles_elapsed.avg.per_second") or clock
    for unit, fma, *others in _SASS:
        stem = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
        width = 2 if unit == "fp16" else 1
        fused = kernel.metrics.get(stem.format(fma))
        if fused is None or clock is None:
            continue
        rate = (2 * width * fused + sum(w * kernel.metrics.get(stem.format(op), 0.0) for op, w in others)) * clock
        peak = kernel.metrics.get(f"sm__sass_thread_inst_executed_op_{fma}_pred_on.sum.peak_sustained")
        by_name[unit] = (rate, 2 * width * peak * sm_clock if peak and sm_clock else None)
    return by_name


def _tensor(kernel: NcuKernel) -> dict[str, tuple[float, float | None]]:
    """Operations per second and the peak of the tensor path in use, per source type."""
    by_name: dict[str, tuple[float, float | None]] = {}
    for name, rate in kernel.metrics.items():
        match = _TENSOR.fullmatch(name) if rate > 0 else None
        if match:
            unit = f"tensor {match[1] or match[2]}"
            peak = kernel.metrics.get(name.replace(".sum.per_second", ".sum.peak_sustained_elapsed.per_second"))
            if rate > by_name.get(unit, (0.0, None))[0]:
                by_name[unit] = (rate, peak)
    return by_name


RUN_CONVENTION = (
    "FLOP and bytes: what Benchmark.work() declares as the least a call must do, over the time that the verdict uses. "
    "Roof: dense peak of the inputs' type; float32 that runs as TF32 may pass the plain cores' peak."
)
UNITS = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "int8": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
Roofs = tuple[float | None, float | None, list[str]]


def run_points(ctx: Context, run: Run) -> tuple[list[Point], list[str], list[str]]:
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
