"""Rules about the devices' work: copies, communication, kernels."""

from __future__ import annotations

from collections.abc import Callable

from aisp_mcp.profile.insights.base import (
    Evidence,
    Finding,
    by_name,
    finding,
    low_precision,
    share,
    short,
    step,
    tensor_cores,
    timeline,
    total,
)
from aisp_mcp.profile.records import Collective, KernelStat, OpStat, Profile
from aisp_mcp.profile.timeline.names import clears_memory, moves_memory, plain_gemm

_SMALL_NS = 5_000
_MESSAGE = 1 << 20
_POINTWISE = {"elementwise", "normalization", "reduction", "softmax", "copy", "optimizer"}
_POINTWISE |= {"activation", "quantization", "rope"}
_SHARED = {"communication", "unknown"}  # other ranks take part, or may: no advice on the kernel alone


def _copies(profile: Profile, matches: Callable[[OpStat], bool]) -> tuple[int, Evidence]:
    rows = [r for r in timeline(profile).memory if matches(r)]
    return sum(r.total_ns for r in rows), [
        {"operation": short(r.name), "count": r.count, "total_ns": r.total_ns, "bytes": r.bytes or 0} for r in rows
    ]


def _kernels(profile: Profile, matches: Callable[[KernelStat], bool]) -> tuple[int, Evidence]:
    rows = [k for k in timeline(profile).kernels if k.kind not in _SHARED and matches(k)]
    return sum(k.total_ns for k in rows), [
        {"kernel": short(k.name), "count": k.count, "total_ns": k.total_ns, "median_ns": k.median_ns} for k in rows
    ]


def _exposed_copies(profile: Profile) -> int:
    return total(profile, lambda b: b.exposed_memory_ns)


def _migration(row: OpStat) -> bool:
    return "Unified" in row.name or "managed" in row.name


def _host_copy(row: OpStat) -> bool:
    return ("Host-to-Device" in row.name or "Device-to-Host" in row.name) and not _migration(row)


def _device_copy(row: OpStat) -> bool:
    return ("Device-to-Device" in row.name or "Peer-to-Peer" in row.name) and not _migration(row)


def pageable_copies(profile: Profile) -> Finding:
    """Copies from or to memory that is not pinned."""
    spent, rows = _copies(profile, lambda r: _host_copy(r) and "pageable" in r.name)
    return finding(
        "Copies use pageable host memory",
        share(profile, min(spent, _exposed_copies(profile))),
        "time of those copies, at most what no kernel hid",
        rows,
        "Pin host memory (pin_memory=True) and copy with non_blocking=True: pageable copies block the host.",
        step("aisp_nsys_summary", "shows sizes and directions", section="memory"),
    )


def exposed_copies(profile: Profile) -> Finding:
    """Copies between host and device while nothing else runs."""
    spent, rows = _copies(profile, lambda r: _host_copy(r) and "pageable" not in r.name)
    return finding(
        "Copies between host and device are not hidden behind kernels",
        share(profile, min(spent, _exposed_copies(profile))),
        "time of those copies, at most what no kernel hid",
        rows,
        "Copy the next batch on a second stream while this one computes; keep data on the device.",
        step("aisp_nsys_summary", "shows sizes and directions", section="memory"),
    )


def device_copies(profile: Profile) -> Finding:
    """Copies inside device memory."""
    copied, rows = _copies(profile, _device_copy)
    moved, kernels = _kernels(profile, lambda k: moves_memory(k.name))
    return finding(
        "Device memory is copied around",
        share(profile, copied + moved),
        "time of copies inside and between devices, and of kernels that only copy (by their names)",
        rows + kernels,
        "Avoid clone(), contiguous() and cat() in the loop; write results where they are needed.",
        step("aisp_profile_torch", "names the operators that copy"),
    )


def memsets(profile: Profile) -> Finding:
    """Buffers are cleared."""
    cleared, rows = _copies(profile, lambda r: "memset" in r.name)
    filled, kernels = _kernels(profile, lambda k: clears_memory(k.name))
    return finding(
        "Clearing buffers takes time",
        share(profile, cleared + filled),
        "time of memsets, and of kernels that fill (by their names)",
        rows + kernels,
        "zero_grad(set_to_none=True); allocate with empty() where everything is written anyway.",
        step("aisp_profile_torch", "names the operators that clear"),
    )


def unified_memory(profile: Profile) -> Finding:
    """Pages migrate between host and device."""
    spent, rows = _copies(profile, _migration)
    return finding(
        "Managed memory migrates during the run",
        share(profile, spent),
        "time of migrations",
        rows,
        "Prefetch (cudaMemPrefetchAsync) or use plain device memory.",
        step("aisp_nsys_summary", "shows the migrations", section="memory"),
    )


def exposed_communication(profile: Profile) -> Finding:
    """Collectives while no compute kernel runs."""
    rows = timeline(profile).breakdown
    if not any(b.communication_ns for b in rows):
        return "no communication kernels in the window"
    evidence: Evidence = [
        {"device": b.device, "communication_ns": b.communication_ns, "exposed_ns": b.exposed_communication_ns}
        for b in rows
    ]
    return finding(
        "Communication is not hidden behind compute",
        share(profile, total(profile, lambda b: b.exposed_communication_ns) - _waiting(profile)),
        "communication time without a concurrent compute kernel, less the time that ranks waited for each other",
        evidence,
        "Start collectives earlier (buckets, prefetch), use a second stream, reduce volume, or overlap micro-batches.",
        step("aisp_profile_hta", "shows overlap per device and per collective"),
    )


def small_messages(profile: Profile) -> Finding:
    """Many collectives of little data each."""
    rows = timeline(profile).collectives
    if not rows:
        return "no communication kernels in the window"
    if all(c.bytes is None for c in rows):
        return "the trace does not say how large messages are (PyTorch since 2.3 does)"
    small = [c for c in rows if c.bytes is not None and c.bytes < _MESSAGE]
    if sum(c.count for c in small) < 20:
        return None
    exposed = total(profile, lambda b: b.exposed_communication_ns)
    return finding(
        "Many small collectives",
        share(profile, min(sum(c.total_ns for c in small), exposed)),
        "exposed time of collectives below 1 MiB",
        [{"collective": c.name, "count": c.count, "bytes": c.bytes or 0, "total_ns": c.total_ns} for c in small],
        "Gather them into buckets (DDP bucket_cap_mb, coalescing manager): their cost is latency, not bandwidth.",
        step("aisp_profile_hta", "lists collectives by size"),
    )


def _skewed(profile: Profile) -> list[Collective]:
    """Large collectives of which some calls take over four times as long as the fastest."""
    rows = timeline(profile).collectives
    large = [c for c in rows if c.count >= 4 and c.bytes is not None and c.bytes >= _MESSAGE]
    return [c for c in large if c.max_ns > 4 * c.min_ns]


def _waiting(profile: Profile) -> int:
    """Time above the fastest call of the same collective and size, at most the exposed part."""
    waiting = sum(c.total_ns - c.count * c.min_ns for c in _skewed(profile))
    return min(waiting, total(profile, lambda b: b.exposed_communication_ns))


def collective_skew(profile: Profile) -> Finding:
    """The same collective takes very different times: some rank arrives late."""
    rows = timeline(profile).collectives
    if not rows:
        return "no communication kernels in the window"
    return finding(
        "Ranks wait for each other in collectives",
        share(profile, _waiting(profile)),
        "time above the fastest call of the same collective and size, at most the exposed part",
        [{"collective": c.name, "min_ns": c.min_ns, "max_ns": c.max_ns, "count": c.count} for c in _skewed(profile)],
        "Find the late rank: compare the breakdown of all ranks; balance input and compute.",
        step("aisp_profile_hta", "on the trace of every rank"),
    )


def small_kernels(profile: Profile) -> Finding:
    """Much time in kernels of a few microseconds."""
    spent, rows = _kernels(profile, lambda k: k.median_ns < _SMALL_NS)
    if sum(int(r["count"]) for r in rows) < 50:
        return None
    return finding(
        "Much GPU time goes to kernels shorter than 5 us",
        share(profile, spent),
        "time of kernels with a median below 5 us",
        rows,
        "Fuse them (torch.compile, foreach or fused optimizers) or do more work per launch.",
        step("aisp_profile_kernels", "lists them"),
    )


@by_name
def unfused_pointwise(profile: Profile) -> Finding:
    """Memory-bound pointwise kernels between the large products."""
    spent, rows = _kernels(profile, lambda k: k.kind in _POINTWISE and k.median_ns >= _SMALL_NS)
    everything = sum(k.total_ns for k in timeline(profile).kernels)
    if not everything or spent / everything < 0.3 or sum(int(r["count"]) for r in rows) < 10:
        return None
    return finding(
        "Element-wise and reduction kernels take a large part of GPU time",
        share(profile, spent),
        "time of element-wise, normalisation, reduction, softmax, copy and optimizer kernels (by their names)",
        rows,
        "Fuse neighbours with torch.compile or a Triton kernel: each pass over memory is paid again.",
        step("aisp_profile_torch", "names the operators that launch them"),
    )


@by_name
def tensor_cores_unused(profile: Profile) -> Finding:
    """Matrix products on the plain cores."""
    present = tensor_cores(profile)
    if present is False:
        return "the device has no tensor cores"
    spent, rows = _kernels(profile, lambda k: plain_gemm(k.name))
    condition = "" if present else "If the device has tensor cores, which the profile does not say: "
    return finding(
        "Matrix products run in float32 or float64 on the plain cores",
        share(profile, spent),
        "time of those kernels (by their names)",
        rows,
        condition + low_precision(profile),
        step("aisp_profile_ncu", "confirms it with the tensor-pipe counter"),
    )


@by_name
def unfused_attention(profile: Profile) -> Finding:
    """Attention as separate products and a softmax."""
    kernels = timeline(profile).kernels
    kinds, softmax = {k.kind for k in kernels}, [k for k in kernels if k.kind == "softmax"]
    if not softmax or "attention" in kinds or "gemm" not in kinds:
        return None
    # Scale and mask process the same scores as the softmax, which may read them up to three times and write them once.
    least = softmax[0].median_ns / 4
    passes = ("softmax", "elementwise", "copy")
    spent, rows = _kernels(profile, lambda k: k.kind in passes and k.median_ns >= least)
    if share(profile, sum(k.total_ns for k in softmax)) < 0.03:
        return None
    return finding(
        "Attention is computed as separate products and a softmax",
        share(profile, spent),
        "time of softmax kernels and of element-wise ones at least a quarter as long; the products' traffic is on top",
        rows,
        "Use torch.nn.functional.scaled_dot_product_attention or FlashAttention.",
        step("aisp_profile_torch", "names the operators around the softmax"),
    )


def register_spills(profile: Profile) -> Finding:
    """Kernels with local memory."""
    if not any(k.local_bytes is not None for k in timeline(profile).kernels):
        return "the trace does not say how much local memory kernels use (ncu does)"
    spent, rows = _kernels(profile, lambda k: (k.local_bytes or 0) > 0)
    return finding(
        "Kernels use local memory: register spills or indexed arrays",
        share(profile, spent),
        "time of kernels with local memory per thread",
        rows,
        "Smaller tiles or less unrolling, more registers per thread; confirm with -Xptxas -v.",
        step("aisp_profile_ncu", "measures the local traffic"),
    )


def _unfilled(profile: Profile, kernel: KernelStat) -> bool:
    """Fewer blocks than multiprocessors: then warp slots are empty because of the grid, which has its own rule."""
    sms = next((d.sms for d in profile.devices if d.sms), None)
    return bool(sms and kernel.grid and kernel.grid[0] * kernel.grid[1] * kernel.grid[2] < sms)


def low_occupancy(profile: Profile) -> Finding:
    """Memory-bound kernels that leave warp slots empty."""
    if all(k.occupancy is None for k in timeline(profile).kernels):
        return "the trace does not say what limits occupancy"
    spent, rows = _kernels(
        profile,
        lambda k: (
            k.occupancy is not None
            and k.occupancy <= 0.25
            and k.kind not in ("gemm", "attention", "convolution")
            and not _unfilled(profile, k)
        ),
    )
    return finding(
        "Kernels other than matrix products (by their names) leave most warp slots empty",
        share(profile, spent),
        "time of those kernels with at most a quarter of the warp slots",
        rows,
        "Fewer registers or less shared memory per block, other block sizes; products with large tiles are exempt.",
        step("aisp_profile_ncu", "says which resource limits and whether it matters"),
    )


def small_grids(profile: Profile) -> Finding:
    """Launches with fewer blocks than multiprocessors."""
    sms = next((d.sms for d in profile.devices if d.sms), None)
    if sms is None:
        return "the profile does not say how many multiprocessors the device has"
    rows = [k for k in timeline(profile).kernels if k.grid and k.kind not in _SHARED and k.median_ns >= _SMALL_NS]
    idle = [(k, 1 - k.grid[0] * k.grid[1] * k.grid[2] / sms) for k in rows if k.grid]
    wasted = [(k, empty) for k, empty in idle if empty > 0.25]
    return finding(
        "Kernels are launched with fewer blocks than multiprocessors",
        share(profile, sum(k.total_ns * empty for k, empty in wasted)),
        "their time, times the share of multiprocessors without a block",
        [
            {"kernel": short(k.name), "grid": str(k.grid), "multiprocessors": sms, "total_ns": k.total_ns}
            for k, _ in wasted
        ],
        "Split the work more finely (split-K, smaller tiles), batch more, or run such kernels on concurrent streams.",
        step("aisp_profile_ncu", "shows waves and idle multiprocessors"),
    )


def unfused_optimizer(profile: Profile) -> Finding:
    """An optimizer that launches a kernel per parameter."""
    rows = [r for r in timeline(profile).ranges if "optim" in r.name.lower() and r.operations / r.count >= 50]
    if not rows:
        return None
    return finding(
        "The optimizer launches a kernel per parameter",
        share(profile, max(r.projected_ns for r in rows)),
        "first start to last end of the optimizer's GPU work",
        [
            {"range": short(r.name), "launches_per_step": round(r.operations / r.count), "projected_ns": r.projected_ns}
            for r in rows
        ],
        "Use fused=True or foreach=True.",
        step("aisp_nsys_summary", "shows the ranges", section="ranges"),
    )


# More specific rules first: at equal ceilings the earlier one is named first.
RULES = (
    unified_memory, pageable_copies, exposed_copies, device_copies, memsets, collective_skew, small_messages,
    exposed_communication, register_spills, tensor_cores_unused, unfused_optimizer, unfused_attention, low_occupancy,
    small_grids, small_kernels, unfused_pointwise,
)  # fmt: skip
