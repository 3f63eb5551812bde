"""Profiles in existing files: summaries, insights, comparisons and pictures. No GPU and no profiler is needed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.profile.compare import Difference, NcuDifference
from aisp_mcp.profile.digest import Found, Idle, NcuSummary, Section, Summary
from aisp_mcp.profile.records import (
    Abstention,
    Collective,
    Insights,
    Profile,
    Source,
    Statement,
    Step,
    StreamStat,
    Timeline,
    Window,
)
from aisp_mcp.profile.roofline import Point
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import READS, WRITES, ReadingParams, S, tool
from aisp_mcp.store.records.run import Run

Path_ = Annotated[str, Field(min_length=1, max_length=4096)]
Limit = Annotated[int, Field(ge=1, le=50)]
Offset = Annotated[int, Field(ge=0)]
WindowName = Literal["all", "steady"]


class NsysParams(ReadingParams):
    profile: Path_ = Field(description="nsys SQLite or .nsys-rep.")
    section: Section = "overview"
    window: WindowName = Field(default="all", description="steady: without warm-up.")
    limit: Limit = 10
    offset: Offset = 0


@tool(
    cli="profile nsys-summary", effect=READS, cost=S, next=("aisp_profile_kernels", "aisp_compare_nsys"),
    chart="timeline",
    listed="default",
)  # fmt: skip
def aisp_nsys_summary(p: NsysParams, ctx: Context) -> Summary:
    """Summarise an nsys export: where time went, idle causes, named problems; totals equal `nsys stats`."""
    from aisp_mcp.profile import digest, load
    from aisp_mcp.profile.timeline import summarize

    trace = _trace(p.profile, ctx)
    if trace.source.kind != "nsys":
        raise load.wrong(p.profile, trace.source.kind, "an nsys SQLite export")
    shown = summarize.profile(trace, p.window)
    judged = p.section in digest.JUDGED and p.window != "steady"
    steady = summarize.judged(trace, shown) if judged else shown
    return digest.summary(shown, p.section, p.limit, steady, p.offset)


def _trace(path: str, ctx: Context) -> Trace:
    """The trace, also from nsys's own format if nsys is installed."""
    from aisp_mcp.profile import load
    from aisp_mcp.profile.readers.files import look
    from aisp_mcp.profile.recording import find, record

    if not record.is_nsys(path):
        return load.load_trace(path)
    folder = ctx.settings.home / "profiles" / "exports"
    trace = load.load_trace(
        record.nsys_database(path, folder, lambda name: find.program(name, ctx.settings.home / "tools"))
    )
    return trace.of(look(path).source("nsys", trace.source.tool, trace.source.version))


def _profile(path: str, window: WindowName, ctx: Context) -> Profile:
    from aisp_mcp.profile.timeline import summarize

    return summarize.profile(_trace(path, ctx), window)


class NcuParams(ReadingParams):
    profile: Path_ = Field(description="CSV of `ncu --csv --page raw`, or .ncu-rep.")
    details: Path_ | None = Field(default=None, description="Details page: adds NVIDIA's rules.")
    kernel: int | None = Field(default=None, ge=0, description="Show the launch with this ID in full.")
    limit: Limit = 20
    offset: Offset = 0


@tool(cli="profile ncu-summary", effect=READS, cost=S, next=("aisp_profile_roofline", "aisp_compare_ncu"))
def aisp_ncu_summary(p: NcuParams, ctx: Context) -> NcuSummary:
    """Summarise an ncu report: what limits each kernel and why, key metrics, NVIDIA's own rule results."""
    from aisp_mcp.profile import digest

    profile = _ncu(p.profile, ctx, p.details)
    kernel = next((k for k in profile.kernels if k.id == p.kernel), None)
    if p.kernel is not None and kernel is None:
        ids = ", ".join(str(k.id) for k in profile.kernels[:20])
        raise NotFound("NO_KERNEL", f"The report has no launch {p.kernel}.", f"It has: {ids}.")
    return digest.ncu_summary(profile, kernel, p.limit, p.offset)


def _ncu(path: str, ctx: Context, details: str | None = None) -> Profile:
    """The profile, also from ncu's own format if ncu or its Python module is installed."""
    from aisp_mcp.profile import load
    from aisp_mcp.profile.recording import find, record

    if record.is_ncu(path):
        return record.ncu_kernels(path, lambda name: find.program(name, ctx.settings.home / "tools"))
    profile = load.load(path, details=details)
    if not profile.kernels:
        raise load.wrong(path, profile.source.kind, "a page of ncu as CSV")
    return profile


class Rank(Record):
    """One trace. Of the section overview: the largest steps, collectives and streams; else that section's rows."""

    source: Source
    rank: int | None
    window: Window
    breakdown: list[Idle]
    diagnostics: list[str]
    steps: list[Step] = Field(default_factory=list)
    collectives: list[Collective] = Field(default_factory=list)
    streams: list[StreamStat] = Field(default_factory=list)
    insights: list[Found] = Field(default_factory=list)
    rows: list[dict[str, Any]] = Field(default_factory=list, description="Of the section, largest first.")
    rows_left_out: int = 0
    abstained: list[Abstention] = Field(default_factory=list)


class Ranks(Record):
    """Traces in the order given. slowest: the trace whose devices computed longest; late ranks make others wait."""

    ranks: list[Rank]
    slowest: int | None = None
    opening: list[Statement] = Field(default_factory=list, description="Of a single trace: where the time went.")


class HtaParams(ReadingParams):
    traces: list[Path_] = Field(
        min_length=1, max_length=16, description="Kineto traces (.json, .json.gz), one per rank."
    )
    section: Section = Field(
        default="overview", description="operators, frames, modules: with the kernels they launch."
    )
    window: WindowName = "all"
    limit: Limit = 10
    offset: Offset = 0


@tool(cli="profile hta", effect=READS, cost=S, next=("aisp_profile_kernels", "aisp_profile_compare"), chart="ranks")
def aisp_profile_hta(p: HtaParams, ctx: Context) -> Ranks:
    """Break down torch.profiler traces: compute, communication, copies, idle by cause, overlap, per rank and step."""
    rows, openings = zip(*(_rank(_trace(path, ctx), p) for path in p.traces), strict=True)
    spent = [sum(b.compute * b.span_ns for b in row.breakdown) for row in rows]
    slowest = spent.index(max(spent)) if len(rows) > 1 else None
    return Ranks(ranks=list(rows), slowest=slowest, opening=openings[0] if len(rows) == 1 else [])


def _rank(trace: Trace, p: HtaParams) -> tuple[Rank, list[Statement]]:
    """The trace's row, with its opening in an overview."""
    from aisp_mcp.profile import digest
    from aisp_mcp.profile.insights.engine import insights
    from aisp_mcp.profile.overview.words import opening
    from aisp_mcp.profile.timeline import summarize

    profile, most = summarize.profile(trace, p.window), max(1, 4 // len(p.traces))
    judged = p.section in digest.JUDGED and p.window != "steady"
    steady = summarize.judged(trace, profile) if judged else profile
    report = insights(steady)
    assert profile.window is not None
    rank = Rank(
        source=profile.source, rank=profile.rank, window=profile.window, breakdown=digest.breakdowns(profile)[:4],
        diagnostics=profile.diagnostics[:4],
    )  # fmt: skip
    if p.section == "overview":
        return rank.model_copy(update=_overview(profile, report, most)), opening(profile, report.found, steady)
    limit = max(1, p.limit // len(p.traces))
    rows, left = digest.section_rows(profile, p.section, limit, report.found, p.offset)
    abstained = digest.abstentions(report) if p.section == "insights" else []
    return rank.model_copy(update={"rows": rows, "rows_left_out": left, "abstained": abstained}), []


def _overview(profile: Profile, report: Insights, most: int) -> dict[str, Any]:
    from aisp_mcp.profile import digest

    table = profile.timeline or Timeline()
    return {
        "steps": table.steps[: 4 * most],
        "collectives": table.collectives[: 2 * most],
        "streams": table.streams[:most],
        "insights": [digest.brief(i) for i in report.found[: 2 * most]],
    }


class Kernels(Record):
    """Kernels by total time. occupancy is theoretical; local_bytes above 0 hints at spills."""

    source: Source
    window: Window
    kernels: list[dict[str, Any]]
    left_out: int


class TraceParams(ReadingParams):
    profile: Path_ = Field(description="nsys SQLite or Kineto trace.")
    window: WindowName = "all"
    limit: Limit = 15
    offset: Offset = 0


@tool(cli="profile kernels", effect=READS, cost=S, next=("aisp_profile_ncu",))
def aisp_profile_kernels(p: TraceParams, ctx: Context) -> Kernels:
    """List a profile's kernels: time, launches, grid, block, registers, shared memory, spill hint, occupancy."""
    from aisp_mcp.profile.readers.text import shorten

    profile = _profile(p.profile, p.window, ctx)
    rows = profile.timeline.kernels if profile.timeline else []
    page = rows[p.offset : p.offset + p.limit]
    shown = [{**k.model_dump(mode="json", exclude_none=True), "name": shorten(k.name, 120)} for k in page]
    assert profile.window is not None
    left = max(0, len(rows) - p.offset - len(shown))
    return Kernels(source=profile.source, window=profile.window, kernels=shown, left_out=left)


class PairParams(ReadingParams):
    baseline: Path_
    candidate: Path_
    limit: Limit = 10
    offset: Offset = 0


class NsysPairParams(PairParams):
    window: WindowName = "steady"


@tool(cli="profile compare-nsys", effect=READS, cost=S, next=("aisp_profile_compare",))
def aisp_compare_nsys(p: NsysPairParams, ctx: Context) -> Difference:
    """Compare two traces: what changed per phase and kernel, what explains it, and whether they are comparable."""
    from aisp_mcp.profile import compare, digest

    compared = compare.compare(_profile(p.baseline, p.window, ctx), _profile(p.candidate, p.window, ctx))
    return digest.difference(compared, p.limit, p.offset)


@tool(cli="profile compare-ncu", effect=READS, cost=S, next=("aisp_ncu_summary",))
def aisp_compare_ncu(p: PairParams, ctx: Context) -> NcuDifference:
    """Compare two ncu reports launch by launch: durations, key metrics, and how the bound shifted."""
    from aisp_mcp.profile import compare, digest

    return digest.ncu_difference(compare.compare_ncu(_ncu(p.baseline, ctx), _ncu(p.candidate, ctx)), p.limit, p.offset)


class FlameFile(Record):
    """The file written, and the total time in it."""

    file: Written
    stacks: int
    total: int
    unit: str


class FlameParams(ReadingParams):
    profile: Path_ = Field(description="nsys SQLite, Kineto, speedscope or stacks.")
    format: Literal["speedscope", "collapsed", "html"] = "html"
    to: str | None = Field(default=None, description="Under an --allow-write folder.")


@tool(cli="profile flame", effect=WRITES, cost=S, next=("aisp_profile_compare",))
def aisp_profile_flame(p: FlameParams, ctx: Context) -> FlameFile:
    """Write a flame graph of host and device time: speedscope, collapsed stacks, or one self-contained HTML file."""
    from aisp_mcp.profile.pictures import flame, flame_page

    weights, unit = flame.stacks(p.profile)
    name = p.profile.rpartition("/")[2]
    if p.format == "collapsed":
        text = flame.to_collapsed(weights)
    else:
        text = (
            flame_page.to_html(weights, unit, name) if p.format == "html" else flame.to_speedscope(weights, unit, name)
        )
    suffix = {"html": "html", "speedscope": "speedscope.json", "collapsed": "folded"}[p.format]
    written = _write(ctx, p.to, f"flame.{suffix}", text)
    return FlameFile(file=written, stacks=len(weights), total=sum(weights.values()), unit=unit)


def _write(ctx: Context, path: str | None, name: str, text: str) -> Written:
    """Write into the folder of the running job, or a new one of the store."""
    import secrets

    from aisp_mcp.server import files

    folder = ctx.run_dir or ctx.settings.home / "profiles" / secrets.token_hex(8)
    return files.write(files.destination(path, folder / name, ctx.allow_write), text.encode())


class FlameDifference(Record):
    """The difference as data, and as a picture."""

    difference: Difference
    file: Written


class CompareParams(PairParams):
    to: str | None = Field(default=None, description="Under an --allow-write folder.")


@tool(cli="profile compare", effect=WRITES, cost=S, next=("aisp_profile_kernels",))
def aisp_profile_compare(p: CompareParams, ctx: Context) -> FlameDifference:
    """Compare two traces and write their flame-graph difference as one self-contained HTML file."""
    from aisp_mcp.profile import compare, digest
    from aisp_mcp.profile.pictures import flame_page
    from aisp_mcp.profile.timeline import summarize

    traces = [_trace(path, ctx) for path in (p.baseline, p.candidate)]
    compared = compare.compare(*(summarize.profile(trace, "steady") for trace in traces))
    page = flame_page.difference(traces, "Change of time, after against before")
    return FlameDifference(
        difference=digest.difference(compared, p.limit, p.offset), file=_write(ctx, p.to, "difference.html", page)
    )


class Roofline(Record):
    """Launches by time, or the programs of a run. lacking: launches without the counters (record with --set
    roofline).
    """

    source: Source | None = None
    run: str | None = None
    convention: str
    roofs: list[str] = Field(default_factory=list, description="Where the roofs of a run come from.")
    points: list[Point]
    lacking: list[int] = Field(default_factory=list)
    without_work: list[str] = Field(
        default_factory=list, description="Programs without a time, or whose benchmark declares no work."
    )


class RooflineParams(ReadingParams):
    profile: Path_ | None = Field(default=None, description="Raw CSV page of an ncu report.")
    run_id: str | None = Field(default=None, max_length=200, description="Instead: a run of aisp_run_benchmarks.")
    limit: Limit = 15
    offset: Offset = 0


@tool(cli="profile roofline", effect=READS, cost=S, next=("aisp_ncu_summary",), chart="kernels")
def aisp_profile_roofline(p: RooflineParams, ctx: Context) -> Roofline:
    """Place an ncu report's kernels, or a run's benchmarks, under the roofline, with convention and roofs named."""
    from aisp_mcp.profile import roofline
    from aisp_mcp.profile.readers.text import shorten

    if (p.profile is None) == (p.run_id is None):
        raise UsageError("NO_PROFILE", "Give a profile or a run.", "profile: 'report.raw.csv', or run_id: 'j_…'.")
    if p.run_id is not None:
        return _run_roofline(p.run_id, p.limit, ctx)
    profile = _ncu(p.profile or "", ctx)
    rows = sorted(profile.kernels, key=lambda k: -(k.duration_ns or 0))[p.offset : p.offset + p.limit]
    points, lacking = roofline.points(rows)
    shown = [point.model_copy(update={"kernel": shorten(point.kernel, 96)}) for point in points]
    return Roofline(source=profile.source, convention=roofline.CONVENTION, points=shown, lacking=lacking)


def _run_roofline(run_id: str, limit: int, ctx: Context) -> Roofline:
    from aisp_mcp.profile import roofline

    run = ctx.store.run(Run, run_id, ctx.sees)
    points, roofs, without = roofline.run_points(ctx, run)
    convention = roofline.RUN_CONVENTION
    return Roofline(run=run.id, convention=convention, roofs=roofs, points=points[:limit], without_work=without)
