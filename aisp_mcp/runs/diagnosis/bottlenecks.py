"""Find what limits a profile or a stored run: read it, classify it, name the evidence."""

from __future__ import annotations

from aisp_mcp.errors import Unavailable
from aisp_mcp.profile import digest, load
from aisp_mcp.profile.digest import Found
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.insights.limiter import thresholds
from aisp_mcp.profile.records import Source
from aisp_mcp.runs import stored
from aisp_mcp.runs.diagnosis import bottleneck
from aisp_mcp.runs.diagnosis import memory_patterns as patterns
from aisp_mcp.runs.diagnosis.bottleneck import Bottleneck
from aisp_mcp.server.context import Context


def of_profile(path: str) -> tuple[Source, list[Bottleneck], list[Found], str]:
    """The file's source, its bottleneck, its named problems and the definition. Raises as profilers.load."""
    profile = load.load(path, "steady")
    briefs = [digest.brief(item) for item in insights(profile).found]
    try:
        if profile.kernels:
            bottlenecks_found = bottleneck.of_kernels(profile.source.path, profile.kernels)
            return profile.source, [bottlenecks_found], briefs, bottleneck.DEFINITIONS["counters"]
        if profile.timeline is not None:
            bottlenecks_found = bottleneck.of_timeline(profile.source.path, profile.timeline)
            return profile.source, [bottlenecks_found], briefs, bottleneck.DEFINITIONS["timeline"]
    except ValueError as error:
        raise Unavailable(
            "NO_EVIDENCE",
            f"The profile does not show what limits it: {error}.",
            "`aisp profile read` says where host time went. For a GPU, record its activity (nsys, torch.profiler), or "
            "counters with ncu --set detailed.",
            [("aisp_profile_read", {"profile": path})],
        ) from error
    raise load.wrong(path, profile.source.kind, "a trace or an ncu page")


def of_run(ctx: Context, run_id: str | None) -> tuple[str, list[Bottleneck], str]:
    """Every program of the run against this machine's measured ceilings. Raises Unavailable NO_CEILING."""
    run = stored.runs(ctx, run_id, 1)[0]
    ceilings = stored.Ceilings(ctx)
    bottlenecks_found = [
        bottleneck.of_rates(name, *shares)
        for comparison in run.comparisons
        for name, shares in ceilings.shares(run, comparison).items()
    ]
    if not any(item.shares for item in bottlenecks_found):
        raise Unavailable(
            "NO_CEILING",
            "No ceiling of the run's device is stored here, or its benchmarks declare no work.",
            "aisp_bench_peak measures the ceilings of this machine; a profile shows more than a run.",
            [("aisp_bench_peak", {}), ("aisp_profile_torch", {"target": run.comparisons[0].target})]
            if run.comparisons
            else [("aisp_bench_peak", {})],
        )
    return run.id, bottlenecks_found, bottleneck.DEFINITIONS["run"]


def memory_patterns(path: str) -> tuple[Source, list[patterns.Kernel]]:
    """Launches of an ncu page by time. Raises as profilers.load."""
    profile = load.load(path)
    if not profile.kernels:
        raise load.wrong(path, profile.source.kind, "a page of ncu as CSV")
    return profile.source, patterns.of_kernels(profile.kernels, thresholds("rules"))
