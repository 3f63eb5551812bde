"""Rules over the counters of single kernels. Ceilings are shares of the time of all profiled launches."""

from __future__ import annotations

from collections.abc import Callable

from aisp_mcp.profile.insights.base import Finding, finding, low_precision, short, step, tensor_cores
from aisp_mcp.profile.insights.limiter import (
    OCCUPANCY,
    POSSIBLE,
    TENSOR,
    WAVES,
    first,
    occupancy_limiter,
    spill_share,
    stall,
    thresholds,
)
from aisp_mcp.profile.insights.limiter import tail_loss as empty_slots
from aisp_mcp.profile.records import NcuKernel, Profile
from aisp_mcp.profile.timeline.names import family

_LOAD, _STORE = ("l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum")
Loss = Callable[[NcuKernel], tuple[float, dict[str, str | int | float]] | None]


def _over(profile: Profile, title: str, loss: Loss, basis: str, fix: str, needs: str) -> Finding:
    """Launches with a loss (share of their own time, evidence). Abstains if no launch has the counters."""
    whole = sum(k.duration_ns or 0 for k in profile.kernels)
    judged = [(k, result) for k in profile.kernels if (result := loss(k)) is not None]
    if not judged:
        return f"no launch has {needs}"
    if not whole:
        return "the report lacks durations (gpu__time_duration)"
    hit = sorted(
        ((k, share, facts) for k, (share, facts) in judged if share > 0), key=lambda h: -h[1] * (h[0].duration_ns or 0)
    )
    ceiling = sum(share * (k.duration_ns or 0) for k, share, _ in hit) / whole
    evidence = [{"id": k.id, "kernel": short(k.name), **facts} for k, _, facts in hit]
    worst = hit[0][0].id if hit else 0
    follow = step("aisp_ncu_summary", "shows all counters of the launch", kernel=worst)
    return finding(title, ceiling, basis, evidence, fix, follow)


def uncoalesced_access(profile: Profile) -> Finding:
    """Warps touch more sectors than their data needs."""
    rules = thresholds("rules")

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        excess, worst, seen = 0.0, 32.0, False
        for op in ("ld", "st"):
            used = kernel.metrics.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
            sectors = kernel.metrics.get(_LOAD.format(op))
            requests = kernel.metrics.get(_STORE.format(op))
            if used is None or not sectors or not requests:
                continue
            seen = True
            # A kernel that stores a handful of results has few sectors, so weight by traffic.
            # Every second word of 4 bytes reaches both bounds.
            if used <= rules["bytes_per_sector"] and sectors / requests >= rules["sectors_per_request"]:
                excess += sectors * (1 - used / 32)
                worst = min(worst, used)
        if not seen:
            return None
        everything = sum(kernel.metrics.get(_LOAD.format(op), 0.0) for op in ("ld", "st"))
        return excess / everything if everything else 0.0, {"bytes_used_per_32_byte_sector": round(worst, 1)}

    return _over(
        profile, "Global memory is accessed in pieces smaller than a sector", loss,
        "time of the launches, times the share of sectors that carry no useful data",
        "Let neighbouring threads touch neighbouring addresses; transpose through shared memory; vector loads.",
        "sector counters (--set full)",
    )  # fmt: skip


def _low(kernel: NcuKernel) -> tuple[float, str] | None:
    """The share of empty warp slots if latency shows and the launch cannot fill them, and the limiting resource."""
    achieved, possible = kernel.metrics.get(OCCUPANCY), kernel.metrics.get(POSSIBLE)
    if achieved is None or possible is None or kernel.limiter is None:
        return None
    limited = (
        kernel.limiter.bound in ("occupancy-limited", "latency-bound") and possible < thresholds("rules")["possible"]
    )
    return (1 - achieved / 100 if limited else 0.0), occupancy_limiter(kernel) or "unknown"


def _occupancy(profile: Profile, resource: str, fix: str) -> Finding:
    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        low = _low(kernel)
        if low is None:
            return None
        facts: dict[str, str | int | float] = {
            "achieved %": round(kernel.metrics[OCCUPANCY], 1),
            "possible %": round(kernel.metrics[POSSIBLE], 1),
            "registers": kernel.metrics.get("launch__registers_per_thread", 0.0),
            "limited_by": low[1],
        }
        return (low[0] if resource in low[1] else 0.0), facts

    title = f"Occupancy is low because of {resource}"
    basis = "time of the launches, times the share of empty warp slots"
    return _over(profile, title, loss, basis, fix, "occupancy and throughput counters (--set detailed)")


def occupancy_registers(profile: Profile) -> Finding:
    """Registers per thread leave room for few warps."""
    fix = "Fewer live values, smaller tiles, __launch_bounds__ or num_warps; beware of spills."
    return _occupancy(profile, "registers", fix)


def occupancy_shared(profile: Profile) -> Finding:
    """Shared memory per block leaves room for few blocks."""
    fix = "Smaller tiles, fewer pipeline stages, or reuse of buffers in shared memory."
    return _occupancy(profile, "shared memory", fix)


def occupancy_block(profile: Profile) -> Finding:
    """Blocks are so small or so large that slots stay empty."""
    fix = "Use 128 to 512 threads per block, so that blocks fill the warp slots evenly."
    return _occupancy(profile, "bloc", fix)


def small_grid(profile: Profile) -> Finding:
    """The grid does not fill the device once."""

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        waves = kernel.metrics.get(WAVES)
        bound = kernel.limiter.bound if kernel.limiter else ""
        if waves is None:
            return None
        return (1 - waves if waves < 1 and bound == "grid-limited" else 0.0), {"waves": round(waves, 3)}

    return _over(
        profile, "The grid is smaller than the device", loss,
        "time of the launches, times the share of block slots without a block",
        "Split the work into more blocks (split-K, more rows per launch) or batch several launches.",
        "launch__waves_per_multiprocessor",
    )  # fmt: skip


def tail_effect(profile: Profile) -> Finding:
    """The last wave of blocks leaves most of the device idle."""
    rules = thresholds("rules")

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        waves, lost = kernel.metrics.get(WAVES), empty_slots(kernel)
        if waves is None or lost is None:
            return None
        bad = waves > 1 and lost >= rules["wave_loss"]
        return (lost / 100 if bad else 0.0), {"waves": round(waves, 2), "empty slots %": round(lost, 1)}

    return _over(
        profile, "The last wave of blocks leaves much of the device idle", loss,
        "time of the launches, times the share of empty slots over all waves",
        "Choose the grid as a multiple of what fits at once, use smaller blocks, or a persistent kernel.",
        "launch__waves_per_multiprocessor",
    )  # fmt: skip


def register_spilling(profile: Profile) -> Finding:
    """Local memory traffic."""

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        part = spill_share(kernel)
        return None if part is None else (part / 100, {"local sectors %": round(part, 1)})

    return _over(
        profile, "Local memory traffic: register spills or indexed arrays", loss,
        "time of the launches, times the share of local sectors",
        "Smaller tiles, less unrolling, constant indices; confirm with -Xptxas -v.",
        "local-memory counters (--set full)",
    )  # fmt: skip


def bank_conflicts(profile: Profile) -> Finding:
    """Threads of a warp hit the same bank of shared memory."""
    rules = thresholds("rules")

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        conflicts = wavefronts = 0.0
        for op in ("ld", "st"):
            conflicts += kernel.metrics.get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum", 0.0)
            wavefronts += kernel.metrics.get(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum", 0.0)
        whole = kernel.metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
        if whole is None:
            return None
        rate = 100 * conflicts / wavefronts if wavefronts else 0.0
        # The gain is limited to the time that the shared-memory pipe was busy.
        busy = kernel.metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed", 100.0)
        facts: dict[str, str | int | float] = {
            "conflicts per wavefront %": round(rate, 1),
            "pipe busy %": round(busy, 1),
        }
        return (rate / 100 * busy / 100 if rate >= rules["conflict_rate"] else 0.0), facts

    return _over(
        profile, "Shared memory accesses conflict in their banks", loss,
        "time of the launches, times conflict rate, times how busy the shared-memory pipe was",
        "Pad rows by one element, or swizzle.",
        "shared-memory wavefront counters (--set full)",
    )  # fmt: skip


def divergence(profile: Profile) -> Finding:
    """Instructions run with few of the 32 threads."""
    rules = thresholds("rules")

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        active = first(kernel, "smsp__thread_inst_executed_per_inst_executed.ratio")
        if active is None:
            return None
        return (1 - active / 32 if active < rules["divergence"] else 0.0), {"active threads of 32": round(active, 1)}

    return _over(
        profile, "Warps run with few active threads", loss,
        "time of the launches, times the share of inactive threads",
        "Sort or compact the work so that warps agree; replace branches by predication.",
        "thread counters (--section WarpStateStats)",
    )  # fmt: skip


def barrier_stalls(profile: Profile) -> Finding:
    """Warps wait for each other."""
    tree = thresholds("tree")

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        share, bound = stall(kernel, "barrier"), kernel.limiter.bound if kernel.limiter else ""
        if share is None:
            return None
        # At a roof, waiting warps cost nothing.
        return (share / 100 if share >= tree["barrier"] and bound == "barrier-limited" else 0.0), {
            "barrier stalls %": round(share, 1)
        }

    return _over(
        profile, "Warps wait at barriers", loss,
        "time of the launches, times the share of stall cycles at barriers",
        "Smaller blocks, warp-level primitives, or more independent work between barriers.",
        "stall counters (--section WarpStateStats)",
    )  # fmt: skip


def tensor_pipe_idle(profile: Profile) -> Finding:
    """A matrix product that leaves the tensor cores idle."""
    rules = thresholds("rules")
    if tensor_cores(profile) is False:
        return "the device has no tensor cores"

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        tensor = first(kernel, TENSOR)
        if tensor is None:
            return None
        idle = tensor < rules["tensor_idle"] and family(kernel.name) == "gemm"
        return (1 - tensor / 100 if idle else 0.0), {"tensor pipe %": round(tensor, 1)}

    return _over(
        profile, "A matrix product does not use the tensor cores", loss,
        "time of the launches, times the idle share of the tensor pipe",
        low_precision(profile) + " Dimensions should be multiples of 16.",
        "sm__pipe_tensor_cycles_active (--set detailed)",
    )  # fmt: skip


def memory_latency(profile: Profile) -> Finding:
    """Warps wait for memory while no unit is busy."""

    def loss(kernel: NcuKernel) -> tuple[float, dict[str, str | int | float]] | None:
        share, low = stall(kernel, "long_scoreboard"), _low(kernel)
        if share is None or kernel.limiter is None:
            return None
        # If the launch has too few warps to hide latency, the cause is whatever limits their number.
        named = kernel.limiter.bound == "latency-bound" and not (low and low[0])
        return (share / 100 if named else 0.0), {"waiting for memory %": round(share, 1)}

    return _over(
        profile, "Latency of memory is not hidden", loss,
        "time of the launches, times the share of stall cycles waiting for memory",
        "More warps or more independent loads per thread, prefetching, asynchronous copies, vector loads.",
        "stall and throughput counters (--set full)",
    )  # fmt: skip


# More specific rules first: at equal ceilings the earlier one is named first.
RULES = (
    register_spilling, uncoalesced_access, bank_conflicts, divergence, barrier_stalls, tensor_pipe_idle,
    occupancy_registers, occupancy_shared, occupancy_block, tail_effect, small_grid, memory_latency,
)  # fmt: skip
