"""Rules about time in which a device was idle."""

from __future__ import annotations

from statistics import median

from aisp_mcp.profile.insights.base import LOW, Evidence, Finding, finding, share, short, step, timeline, total
from aisp_mcp.profile.records import Insight, OpStat, Profile, RangeStat
from aisp_mcp.profile.timeline.idle import BLOCKED, RECORDED, UNRECORDED

_SHORT_GAP_NS = 100_000  # host gaps shorter than this on average are the price of launches, not of a host task
_JITTER = 1.3


def _host(profile: Profile, *activities: str) -> int:
    return sum(row.ns for row in timeline(profile).host_in_gaps if row.activity in activities)


def _gaps(profile: Profile, *causes: str) -> Evidence:
    rows = [gap for gap in timeline(profile).gaps if gap.cause in (causes or ("host", "host blocked"))]
    return [
        {"gap_ns": g.duration_ns, "before": short(g.before), "host": short(g.host or "?"), "at_ns": g.start_ns}
        for g in rows
    ]


def _calls(profile: Profile, *words: str) -> Evidence:
    rows = [c for c in timeline(profile).api if any(w in c.name.lower() for w in words)]
    return [{"call": short(c.name), "count": c.count, "total_ns": c.total_ns, "max_ns": c.max_ns} for c in rows]


def _mean_gap(profile: Profile) -> float:
    count = timeline(profile).host_gaps
    return total(profile, lambda b: b.idle_host_ns) / count if count else 0.0


def _plain(profile: Profile) -> float:
    """Idle time in which the host ran its own code or launched, and nothing more specific."""
    ordinary = ["launch", RECORDED, UNRECORDED, "other CUDA call", "copy"]
    # A slow launch is a separate problem; a short one is the ordinary cost of launching.
    longest = max((int(g["gap_ns"]) for g in _gaps(profile, "host blocked")), default=0)
    return share(profile, _host(profile, *ordinary, *([BLOCKED] if longest <= _SHORT_GAP_NS else [])))


def launch_bound(profile: Profile) -> Finding:
    """The device waits for launches: many short gaps before short kernels."""
    if not timeline(profile).api:
        return "the trace contains no CUDA calls, so gaps have no cause"
    mean = _mean_gap(profile)
    if not 0 < mean <= _SHORT_GAP_NS:
        return None
    evidence: Evidence = [
        {"host_gaps": timeline(profile).host_gaps, "mean_gap_ns": round(mean), "launches": _launches(profile)}
    ]
    return finding(
        "The GPU waits for the host to launch the next kernel",
        _plain(profile),
        "idle time in gaps that the host caused while running its own code or launching",
        [*evidence, *_gaps(profile)],
        "Launch less often: CUDA graphs, torch.compile(mode='reduce-overhead'), larger batches, fused operators.",
        step("aisp_profile_torch", "shows which operators launch the kernels before the gaps"),
    )


def _launches(profile: Profile) -> int:
    return sum(c.count for c in timeline(profile).api if "launch" in c.name.lower())


def host_code(profile: Profile) -> Finding:
    """The device waits for long stretches of host work."""
    if not timeline(profile).api:
        return "the trace contains no CUDA calls, so gaps have no cause"
    if _mean_gap(profile) <= _SHORT_GAP_NS:
        return None
    proven = _host(profile, UNRECORDED) * 2 < _host(profile, RECORDED, UNRECORDED)
    return finding(
        "The GPU waits for long stretches of host code"
        if proven
        else "The GPU waits long for the next launch, and the trace does not say what the host did meanwhile",
        _plain(profile),
        "idle time in gaps before operations that were launched late, outside synchronisation, input, allocation and "
        "compilation",
        _gaps(profile),
        "Move the work off the critical path: another thread or process, ahead of time, or onto the GPU."
        if proven
        else "Record what the host does: with_stack=True, NVTX ranges, or nsys with -t osrt and CPU sampling.",
        step("aisp_profile_torch", "with stacks, names the Python functions inside the gaps"),
    )


def sync_in_loop(profile: Profile) -> Finding:
    """Synchronisation drains the queue, so that the device idles until the host has launched again."""
    if not timeline(profile).api:
        return "the trace contains no CUDA calls"
    return finding(
        "Synchronisation drains the GPU's queue",
        share(profile, _host(profile, "synchronize")),
        "idle time in gaps that began while the launching thread was blocked",
        [*_calls(profile, "synchronize"), *_gaps(profile)],
        "Read results less often: no .item() or print in each step, copies with non_blocking=True, no synchronize().",
        step("aisp_profile_torch", "names the operator that synchronises (aten::item, aten::_local_scalar_dense, …)"),
    )


def input_wait(profile: Profile) -> Finding:
    """The device waits for the next batch."""
    tl = timeline(profile)
    if not tl.ranges and not tl.operators:
        return "the trace contains no ranges or operators that would name the data loader"
    rows: list[OpStat | RangeStat] = [*tl.operators, *tl.ranges]
    evidence: Evidence = [
        {"range": short(r.name), "count": r.count, "total_ns": r.total_ns, "max_ns": r.max_ns}
        for r in rows
        if any(w in r.name.lower() for w in ("loader", "batch", "data"))
    ]
    return finding(
        "The GPU waits for input",
        share(profile, _host(profile, "input")),
        "idle time under ranges or operators named as data loading",
        evidence,
        "More loader workers, prefetching, pinned memory, cheaper decoding, or a cache of decoded samples.",
        step("aisp_profile_torch", "shows what the loader does in the gaps"),
    )


def compile_in_window(profile: Profile) -> Finding:
    """The device waits for torch.compile or a kernel compiler."""
    tl = timeline(profile)
    if not tl.ranges and not tl.operators:
        return "the trace contains no ranges or operators that would name a compiler"
    if profile.compile is not None and profile.compile.recompiles:
        return "code was compiled again: recompiles names the time and the reasons"
    return finding(
        "Compilation happens inside the measured window",
        share(profile, _host(profile, "compile")),
        "idle time under ranges or operators named as compilation",
        [{"longest_gap_ns": g.duration_ns, "before": short(g.before)} for g in tl.gaps[:3]],
        "Warm up before measuring; if it repeats, shapes or Python values change: mark them dynamic.",
        step("aisp_profile_torch", "counts recompilations and names their reasons"),
    )


def code_loading(profile: Profile) -> Finding:
    """The device waits while kernels are loaded for the first time."""
    return finding(
        "Kernels are loaded inside the window",
        share(profile, _host(profile, "load code")),
        "idle time during calls that load modules and libraries",
        _calls(profile, "load", "getfunction", "getkernel"),
        "Warm up before measuring, or set CUDA_MODULE_LOADING=EAGER where start-up time may grow.",
        step("aisp_nsys_summary", "over the steady iterations only", section="gaps"),
    )


def driver_allocation(profile: Profile) -> Finding:
    """The device waits for cudaMalloc and cudaFree."""
    return finding(
        "Memory is allocated from the driver inside the window",
        share(profile, _host(profile, "allocate")),
        "idle time under allocation and free calls of the driver",
        _calls(profile, "alloc", "free", "hostregister"),
        "Reuse buffers; expandable_segments:True; avoid empty_cache(); pin host buffers once.",
        step("aisp_profile_memory", "shows which stacks allocate and what is held at the peak"),
    )


def launch_blocked(profile: Profile) -> Finding:
    """Launch calls that take long: the host is held inside the driver while the device has nothing to do."""
    if not timeline(profile).api:
        return "the trace contains no CUDA calls"
    rows = [g for g in _gaps(profile, "host blocked") if int(g["gap_ns"]) > _SHORT_GAP_NS]
    if not rows:
        return None
    return finding(
        "The host is held inside launch calls",
        share(profile, _host(profile, BLOCKED)),
        "idle time from the beginning of a gap to the return of the launch call that was under way",
        rows,
        "Look for locks around launches in other threads, profiler overhead, and kernels loaded on first use.",
        step("aisp_nsys_summary", "lists the gaps with the call that filled them", section="gaps"),
    )


def dependency_wait(profile: Profile) -> Finding:
    """Work was launched in time, and its stream waited for an event of another stream or device."""
    if not timeline(profile).api:
        return "the trace contains no CUDA calls, so gaps have no cause"
    unsaid = share(profile, total(profile, lambda b: b.idle_other_ns))
    if not timeline(profile).stream_waits and unsaid >= LOW:
        return f"launched work waited for {100 * unsaid:.2g} % of the window, and no record gives the reason"
    return finding(
        "Launched work waits for an event of another stream or device, or for a host function",
        share(profile, total(profile, lambda b: b.idle_dependency_ns)),
        "idle time in gaps of over 10 us before operations whose stream had to wait",
        _gaps(profile, "dependency"),
        "Remove dependencies that are not needed; split work so that other streams can fill the wait.",
        step("aisp_nsys_summary", "lists the gaps with what ended them", section="gaps"),
    )


def unexplained_gaps(profile: Profile) -> Finding:
    """Gaps whose launch is not in the file have no known cause."""
    unknown = share(profile, total(profile, lambda b: b.idle_unknown_ns))
    if unknown < LOW:
        return None
    return f"{100 * unknown:.2g} % of the window is idle before work whose launch is not recorded"


def turnaround(profile: Profile) -> Finding:
    """The time between back-to-back kernels adds up."""
    waiting = total(profile, lambda b: b.idle_kernel_ns)
    count = sum(k.count for k in timeline(profile).kernels)
    return finding(
        "The pauses between back-to-back kernels add up",
        share(profile, waiting),
        "idle time in gaps of up to 10 us before operations that had been launched before the gap",
        [{"kernels": count, "idle_ns": waiting}],
        "Fewer, longer kernels: fuse, use CUDA graphs, or programmatic dependent launch.",
        step("aisp_profile_kernels", "shows the short kernels"),
    )


def idle_ends(profile: Profile) -> Finding:
    """The device has nothing to do at the beginning or end of the window."""
    return finding(
        "The GPU idles before the first or after the last operation of the window",
        share(profile, total(profile, lambda b: b.idle_edge_ns)),
        "window minus first start to last end of each device",
        [{"device": b.device, "idle_edge_ns": b.idle_edge_ns} for b in timeline(profile).breakdown],
        "Prepare the first batch before the step begins; overlap the end of a step with the next one's beginning.",
        step("aisp_nsys_summary", "lists the steps", section="steps"),
    )


def step_jitter(profile: Profile) -> Finding:
    """Some steps take much longer than the median."""
    steps = timeline(profile).steps
    if len(steps) < 5:
        return f"needs at least 5 steps, the window has {len(steps)}"
    times = [s.duration_ns for s in steps]
    middle = median(times)
    slow = [s for s in steps if s.duration_ns > _JITTER * middle]
    lost = sum(s.duration_ns - middle for s in slow)
    # This rule is about a few slow steps; other rules explain what all steps share.
    return finding(
        "Some steps are much slower than the median",
        lost / sum(times) if times and slow else 0.0,
        "time above the median of steps that took over 1.3 times the median",
        [
            {"step": short(s.name), "duration_ns": s.duration_ns, "median_ns": round(middle), "idle_ns": s.idle_ns or 0}
            for s in slow
        ],
        "Look for extra work in the slow steps: logging, checkpoints, validation, garbage collection, a slow batch.",
        step("aisp_nsys_summary", "lists all steps", section="steps"),
    )


def device_imbalance(profile: Profile) -> Insight | None:
    """One device works longer than the others."""
    rows = timeline(profile).breakdown
    if len(rows) < 2:
        return None
    compute = [b.compute_ns for b in rows]
    return finding(
        "The devices do unequal work",
        (max(compute) - sum(compute) / len(compute)) / max(b.span_ns for b in rows),
        "longest minus mean compute time, over the window",
        [{"device": b.device, "compute_ns": b.compute_ns, "communication_ns": b.communication_ns} for b in rows],
        "Balance the split: layers per pipeline stage, tokens per expert, samples per rank.",
        step("aisp_profile_hta", "shows the breakdown per device"),
    )


# More specific rules first: at equal ceilings the earlier one is named first.
RULES = (
    sync_in_loop, input_wait, compile_in_window, code_loading, driver_allocation, step_jitter, device_imbalance,
    launch_blocked, launch_bound, host_code, dependency_wait, unexplained_gaps, turnaround, idle_ends,
)  # fmt: skip
