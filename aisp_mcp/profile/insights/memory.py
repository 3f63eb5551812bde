"""Rules about the allocator's history and about torch.compile."""

from __future__ import annotations

from aisp_mcp.profile.insights.base import Finding, finding, share, step
from aisp_mcp.profile.records import CompileProfile, Profile

_MEANS = "share of the peak memory, not of time"


def memory_growth(profile: Profile) -> Finding:
    """Every step retains memory."""
    rows = [m for m in profile.memory if m.peak_bytes]
    judged = [m for m in rows if len(m.growth) >= 3]
    if not judged:
        return "the history marks fewer than three steps, so growth per step is unknown"
    # The last step's own work may still be held when the snapshot is taken; the first sets up lasting state.
    steady = [(m, m.growth[1:-1]) for m in judged]
    leaking = [(m, inner) for m, inner in steady if inner and min(inner) > 0]
    return finding(
        "Every step keeps memory that it never frees",
        max((sum(inner) / m.peak_bytes for m, inner in leaking), default=0.0),
        f"bytes retained by the inner steps; {_MEANS}",
        [
            {"device": m.device, "kept_per_step": round(sum(inner) / len(inner)), "steps": len(inner)}
            for m, inner in leaking
        ],
        "Look for tensors kept in lists, losses summed without .item() or detach(), and retained graphs.",
        step("aisp_profile_memory", "shows the stacks that hold memory at the peak"),
    )


def unused_reservation(profile: Profile) -> Finding:
    """The allocator reserves more than was ever needed at once."""
    if not any(m.events for m in profile.memory):
        return "the snapshot has no history, so that the peak is unknown"
    rows = [m for m in profile.memory if m.unused_at_peak > 0.2]
    return finding(
        "The allocator reserves much more than the peak needs: fragmentation",
        max((m.unused_at_peak for m in rows), default=0.0),
        "memory reserved at the peak and still at the end, minus the peak, of reserved memory; not of time",
        [{"device": m.device, "peak_reserved": m.peak_reserved_bytes, "peak": m.peak_bytes} for m in rows],
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; fewer different sizes; allocate long-lived tensors first.",
        step("aisp_profile_memory", "shows the timeline"),
    )


def allocator_churn(profile: Profile) -> Finding:
    """The allocator calls the driver again and again."""
    if all(m.segment_flushes is None for m in profile.memory):
        return "the record does not say how often segments were returned"
    rows = [m for m in profile.memory if (m.segment_flushes or 0) >= 4 and m.segment_allocations >= 4]
    return finding(
        "Segments are returned to the driver and taken again",
        max((m.segment_frees / max(m.allocations, 1) for m in rows), default=0.0),
        "driver frees per allocation; each waits for the device",
        [
            {
                "device": m.device,
                "times_returned": m.segment_flushes or 0,
                "segment_allocs": m.segment_allocations,
                "segment_frees": m.segment_frees,
            }
            for m in rows
        ],
        "No empty_cache() in the loop; expandable_segments:True; lower the peak so that retries are not needed.",
        step("aisp_profile_memory", "shows the timeline"),
    )


def out_of_memory(profile: Profile) -> Finding:
    """An allocation failed."""
    rows = [m for m in profile.memory if m.out_of_memory]
    return finding(
        "Allocations failed for lack of memory",
        1.0 if rows else 0.0,
        "a run that stops saves nothing",
        [{"device": m.device, "failures": m.out_of_memory, "peak": m.peak_bytes} for m in rows],
        "Reduce what the stacks at the peak hold: checkpointing, smaller micro-batches, lower precision, sharding.",
        step("aisp_profile_memory", "shows the stacks at the peak"),
    )


def _compiled(profile: Profile) -> CompileProfile:
    assert profile.compile is not None
    return profile.compile


def graph_breaks(profile: Profile) -> Finding:
    """torch.compile falls back to Python inside a frame."""
    rows = _compiled(profile).graph_breaks
    count = sum(r.count for r in rows)
    frames = max(_compiled(profile).frames, 1)
    return finding(
        "torch.compile breaks the graph",
        count / (count + frames) if count else 0.0,
        "breaks per frame and break; not of time",
        [{"reason": r.what, "count": r.count} for r in rows],
        "Remove the named constructs, or mark the function with fullgraph=True to make each an error.",
        step("aisp_profile_torch", "after a change, counts again"),
    )


def recompiles(profile: Profile) -> Finding:
    """torch.compile compiles the same frame again."""
    done = _compiled(profile)
    if not done.recompiles:
        return None
    ceiling, basis = _recompiling(profile, done)
    return finding(
        "torch.compile compiles the same code again",
        ceiling,
        basis,
        [{"reason": r.what, "count": r.count} for r in done.recompile_reasons],
        "Mark the changing sizes dynamic (torch._dynamo.mark_dynamic), pass numbers as tensors, pad to few sizes.",
        step("aisp_profile_torch", "after a change, counts again"),
    )


def _recompiling(profile: Profile, done: CompileProfile) -> tuple[float, str]:
    """The time that the device waited for compilation, if a timeline shows it; otherwise the number of
    recompilations.
    """
    if profile.timeline is not None and profile.timeline.breakdown:
        waited = sum(row.ns for row in profile.timeline.host_in_gaps if row.activity == "compile")
        return share(profile, waited), "idle time under ranges or operators named as compilation"
    return done.recompiles / max(done.frames, 1), "recompilations of all compilations; not of time"


RULES = (out_of_memory, memory_growth, allocator_churn, unused_reservation)
COMPILE_RULES = (recompiles, graph_breaks)
