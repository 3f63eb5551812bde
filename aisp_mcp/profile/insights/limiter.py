"""Limiter of a kernel: a decision tree over its counters that covers every region of the plane."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from aisp_mcp.machine.datasheets.load import document
from aisp_mcp.profile.records import Limiter, NcuKernel

SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed")
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "block size": "launch__occupancy_limit_warps",
    "blocks per SM": "launch__occupancy_limit_blocks",
}


def first(kernel: NcuKernel, *names: str) -> float | None:
    """The first of these metrics that the report has: names change between chips and versions."""
    return next((kernel.metrics[n] for n in names if n in kernel.metrics), None)


def stall(kernel: NcuKernel, reason: str) -> float | None:
    """Share of warp cycles stalled for this reason, percent."""
    direct = kernel.metrics.get(f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct")
    if direct is not None:
        return direct
    part = kernel.metrics.get(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
    whole = kernel.metrics.get("smsp__average_warp_latency_per_inst_issued.ratio")
    return 100 * part / whole if part is not None and whole else None


def spill_share(kernel: NcuKernel) -> float | None:
    """Percentage of L1 sectors that belong to local memory."""
    local = [kernel.metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum") for op in ("ld", "st")]
    remote = [kernel.metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum") for op in ("ld", "st")]
    known = [v for v in local if v is not None]
    total = sum(v for v in (*local, *remote) if v is not None)
    return 100 * sum(known) / total if known and total else (0.0 if known else None)


def tail_loss(kernel: NcuKernel) -> float | None:
    """Share of block slots that are empty in the last wave, over all waves, percent."""
    waves = kernel.metrics.get(WAVES)
    return 100 * (1 - waves / math.ceil(waves)) if waves else None


def occupancy_limiter(kernel: NcuKernel) -> str | None:
    """Resource that allows the fewest blocks per multiprocessor; if several tie, all are named.

    Shared memory is named only if the kernel requests some: the driver's own KiB per block cannot be changed.
    """
    limits = {label: kernel.metrics[name] for label, name in _LIMITS.items() if name in kernel.metrics}
    sizes = [kernel.metrics.get(f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic")]
    if sizes == [0, 0]:
        limits.pop("shared memory", None)
    if not limits:
        return None
    least = min(limits.values())
    return " and ".join(label for label, value in limits.items() if value == least)


def marks(kernel: NcuKernel) -> dict[str, str]:
    """good, warn or critical for each metric of the table that the report has."""
    marks_by_name = {}
    for name, scale in thresholds("metrics").items():
        value = kernel.metrics.get(name)
        if value is None and name.startswith("smsp__warp_issue_stalled_"):
            value = stall(kernel, name.removeprefix("smsp__warp_issue_stalled_").partition("_per_")[0])
        if value is not None and "good" in scale:
            sign = 1 if scale["up"] else -1
            good, critical = sign * value >= sign * scale["good"], sign * value < sign * scale["critical"]
            marks_by_name[name] = "good" if good else "critical" if critical else "warn"
    return marks_by_name


def judge(kernel: NcuKernel) -> Limiter | None:
    """The bound, or None if the report lacks the throughputs (then record with --set detailed)."""
    compute, dram = first(kernel, SM), first(kernel, *DRAM)
    if compute is None or dram is None:
        return None
    units = {
        "device memory": dram,
        "L2": first(kernel, L2) or 0.0,
        "L1 and shared memory": first(kernel, L1 + "elapsed", L1 + "active") or 0.0,
    }
    tree = thresholds("tree")
    # The outermost saturated level is the bound: the inner ones cannot pass on more than it delivers.
    saturated = [item for item in units.items() if item[1] >= tree["bound"]]
    level, memory = saturated[0] if saturated else max(units.items(), key=lambda item: item[1])
    facts = {"compute %": compute, **{f"{name} %": value for name, value in units.items()}}
    spilled = spill_share(kernel)
    if spilled is not None and spilled >= tree["spill_share"]:
        return _limiter(kernel, "spill-limited", f"{spilled:.0f} % of L1 traffic is local memory", facts)
    if max(compute, memory) >= tree["bound"]:
        return _at_a_roof(kernel, compute, memory, level, facts)
    return _below(kernel, compute, memory, facts)


def _at_a_roof(kernel: NcuKernel, compute: float, memory: float, level: str, facts: dict[str, float]) -> Limiter:
    tree = thresholds("tree")
    if min(compute, memory) >= tree["bound"] and abs(compute - memory) < tree["margin"]:
        return _limiter(kernel, "balanced", f"compute and {level} are both near their peaks", facts)
    if memory > compute:
        return _limiter(kernel, f"memory-bound ({level})", f"{level} works at {memory:.0f} % of its peak", facts)
    tensor, issue = first(kernel, TENSOR), first(kernel, ISSUE)
    if tensor is not None and tensor >= tree["bound"]:
        return _limiter(
            kernel, "compute-bound (tensor)", f"the tensor pipe is active {tensor:.0f} % of the time", facts
        )
    if issue is not None and issue >= tree["bound"]:
        return _limiter(kernel, "compute-bound (issue)", f"instructions are issued in {issue:.0f} % of cycles", facts)
    return _limiter(kernel, "compute-bound", f"a compute unit works at {compute:.0f} % of its peak", facts)


def _below(kernel: NcuKernel, compute: float, memory: float, facts: dict[str, float]) -> Limiter:
    """The bound if no unit is near its peak: something keeps the warps from issuing."""
    tree = thresholds("tree")
    waves, loss = kernel.metrics.get(WAVES), tail_loss(kernel)
    if waves is not None and waves < tree["waves_small"]:
        return _limiter(kernel, "grid-limited", f"the grid is {waves:.2f} waves: it does not fill the device", facts)
    barrier, occupancy = stall(kernel, "barrier"), kernel.metrics.get(OCCUPANCY)
    if barrier is not None and barrier >= tree["barrier"]:
        return _limiter(kernel, "barrier-limited", f"{barrier:.0f} % of warp cycles wait at a barrier", facts)
    possible = kernel.metrics.get(POSSIBLE)
    if occupancy is not None and occupancy < tree["occupancy"] and possible is not None and possible < 100:
        why = f"{occupancy:.0f} % of warp slots are used, {possible:.0f} % can be"
        return _limiter(kernel, "occupancy-limited", why, facts)
    if loss is not None and waves is not None and waves < tree["tail_waves"] and loss >= tree["tail_loss"]:
        return _limiter(
            kernel, "tail-limited", f"{waves:.2f} waves leave {loss:.0f} % of the slots empty at the end", facts
        )
    if max(compute, memory) >= tree["near"]:
        return _limiter(kernel, "near a roof", "the busiest unit is between 40 and 60 %: no single cause", facts)
    waits = {
        r: stall(kernel, r) or 0.0
        for r in ("long_scoreboard", "short_scoreboard", "mio_throttle", "math_pipe_throttle", "wait")
    }
    reason, share = max(waits.items(), key=lambda item: item[1])
    words = {
        "long_scoreboard": "memory",
        "short_scoreboard": "shared memory or special functions",
        "mio_throttle": "the memory queue",
    }
    why = f"{share:.0f} % of warp cycles wait for {words.get(reason, reason)}" if share else "all units are mostly idle"
    return _limiter(kernel, "latency-bound", why, facts)


def _limiter(kernel: NcuKernel, bound: str, why: str, facts: dict[str, float]) -> Limiter:
    more = {
        "occupancy %": kernel.metrics.get(OCCUPANCY),
        "waves": kernel.metrics.get(WAVES),
        "tensor pipe %": first(kernel, TENSOR),
    }
    evidence = {name: round(value, 2) for name, value in {**facts, **more}.items() if value is not None}
    return Limiter(bound=bound, why=why, evidence=evidence, occupancy_limiter=occupancy_limiter(kernel))


@cache
def thresholds(section: str) -> dict[str, Any]:
    """One section of metrics.yaml: metrics, tree or rules."""
    values: dict[str, Any] = document("metrics.yaml", "aisp_mcp.profile.insights")[section]
    return values
