"""An excerpt of a profile for an answer: short names, the largest rows, omissions; at most 8 kB of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.profile.compare import Delta, Difference, NcuDifference
from aisp_mcp.profile.insights.limiter import marks
from aisp_mcp.profile.overview.words import opening
from aisp_mcp.profile.readers.text import shorten
from aisp_mcp.profile.records import (
    Abstention,
    Breakdown,
    Insight,
    Insights,
    Limiter,
    NcuKernel,
    OpStat,
    Profile,
    ProfiledDevice,
    RuleResult,
    Source,
    Statement,
    Window,
)
from aisp_mcp.records import Record

Section = Literal[
    "overview", "insights", "kernels", "memory", "api", "ranges", "gaps", "syncs", "steps", "streams", "collectives",
    "operators", "frames", "modules", "replays",
]  # fmt: skip
_MODULE = "nn.Module: "
_NAME = 96
_OF_DEVICE = {"operations", "gpu_ns", "self_gpu_ns", "projected_ns"}


class Idle(Record):
    """A device's window in shares: compute + exposed_* + idle_* = 1, from exact unions of intervals."""

    device: int
    span_ns: int
    compute: float
    unknown: float = Field(default=0.0, description="Kernels that may compute or communicate.")
    exposed_communication: float
    exposed_copies: float
    idle_host: float
    idle_kernel: float
    idle_dependency: float
    idle_other: float
    idle_unknown: float
    idle_edge: float
    communication_overlap: float | None = None


class DigestRow(Record):
    """One line of a table. Names are shortened in the middle."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    share: float


class Found(Record):
    """An insight in brief; section=insights shows its evidence."""

    rule: str
    severity: str
    title: str
    gain_ceiling: float
    fix: str


class Summary(Record):
    """Excerpt of a timeline, with its source. All times are nanoseconds."""

    source: Source
    window: Window
    devices: list[ProfiledDevice]
    diagnostics: list[str]
    breakdown: list[Idle]
    section: Section
    rows: list[dict[str, Any]] = Field(description="Of the section, largest first.")
    rows_left_out: int
    insights: list[Found]
    abstained: list[Abstention] = Field(default_factory=list)
    opening: list[Statement] = Field(default_factory=list, description="Of the overview: where the time went.")


JUDGED = ("overview", "insights")  # sections that need the rules


def summary(profile: Profile, section: Section, limit: int, steady: Profile, offset: int = 0) -> Summary:
    """profile: the window of the tables; steady: the window of the insights, if they are shown."""
    from aisp_mcp.profile.insights.engine import insights

    report = insights(steady) if section in JUDGED else Insights()
    rows, left = section_rows(profile, section, limit, report.found, offset)
    assert profile.window is not None
    return Summary(
        source=profile.source,
        window=profile.window,
        devices=profile.devices[:8],
        diagnostics=[shorten(d, 160) for d in profile.diagnostics[:8]],
        breakdown=breakdowns(profile)[:8],
        section=section,
        rows=rows,
        rows_left_out=left,
        insights=[brief(i) for i in report.found[:6]] if section == "overview" else [],
        abstained=abstentions(report) if section == "insights" else [],
        opening=opening(profile, report.found, steady) if section == "overview" else [],
    )


def abstentions(report: Insights) -> list[Abstention]:
    return [Abstention(rule=a.rule, reason=shorten(a.reason, 90)) for a in report.abstained]


def brief(insight: Insight) -> Found:
    return Found(
        rule=insight.rule,
        severity=insight.severity,
        title=insight.title,
        gain_ceiling=insight.gain_ceiling,
        fix=insight.fix,
    )


def breakdowns(profile: Profile) -> list[Idle]:
    return [_idle(row) for row in profile.timeline.breakdown] if profile.timeline else []


def _idle(row: Breakdown) -> Idle:
    def part(ns: int) -> float:
        return round(ns / row.span_ns, 6) if row.span_ns else 0.0

    return Idle(
        device=row.device,
        span_ns=row.span_ns,
        compute=part(row.compute_ns),
        unknown=part(row.unknown_ns),
        exposed_communication=part(row.exposed_communication_ns),
        exposed_copies=part(row.exposed_memory_ns),
        idle_host=part(row.idle_host_ns),
        idle_kernel=part(row.idle_kernel_ns),
        idle_dependency=part(row.idle_dependency_ns),
        idle_other=part(row.idle_other_ns),
        idle_unknown=part(row.idle_unknown_ns),
        idle_edge=part(row.idle_edge_ns),
        communication_overlap=None if row.overlap is None else round(row.overlap, 4),
    )


def section_rows(
    profile: Profile, section: Section, limit: int, findings: Sequence[Insight], offset: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """Rows of one table from offset on, and the number of rows after them."""
    timeline = profile.timeline
    if timeline is None:
        return [], 0
    table: Sequence[Record]
    if section == "insights":
        table, limit = findings, min(limit, 8)
    elif section == "overview":
        table, limit = timeline.kernels or timeline.operators or timeline.frames, min(limit, 8)
    elif section == "modules":
        table = [row for row in timeline.frames if row.name.startswith(_MODULE)]
    else:
        table = getattr(timeline, section)
    shown = table[offset : offset + limit]
    rows = [_shown(row, section) for row in shown]
    if not timeline.breakdown:  # columns about a device would all be zero
        rows = [{key: value for key, value in row.items() if key not in _OF_DEVICE} for row in rows]
    return rows, max(0, len(table) - offset - len(shown))


def _shown(row: Record, section: Section) -> dict[str, Any]:
    if isinstance(row, Insight):
        return _evident(row)
    return short_row(row) if section == "overview" and isinstance(row, OpStat) else _plain(row)


def _evident(insight: Insight) -> dict[str, Any]:
    data = insight.model_dump(mode="json", exclude={"next": {"args"}} if not insight.next.args else None)
    data["evidence"] = [_short_texts(row) for row in data["evidence"][:2]]
    return data


def short_row(row: OpStat) -> dict[str, Any]:
    return DigestRow(
        name=shorten(row.name, _NAME),
        count=row.count,
        total_ns=row.total_ns,
        median_ns=row.median_ns,
        share=round(row.share, 4),
    ).model_dump()


def _plain(row: Record) -> dict[str, Any]:
    return _short_texts(row.model_dump(mode="json", exclude_none=True))


def _short_texts(row: dict[str, Any]) -> dict[str, Any]:
    short = {key: shorten(value, _NAME) if isinstance(value, str) else value for key, value in row.items()}
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in short.items()}


class KernelBrief(Record):
    """One launch in a list."""

    id: int
    kernel: str
    duration_ns: float | None
    bound: str | None
    why: str | None


class NcuSummary(Record):
    """Launches by time, or one launch in full."""

    source: Source
    devices: list[ProfiledDevice]
    launches: int
    kernels: list[KernelBrief]
    kernels_left_out: int
    insights: list[Found]
    opening: list[Statement] = Field(default_factory=list)
    limiter: Limiter | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    marks: dict[str, str] = Field(default_factory=dict, description="good, warn or critical by the shipped table.")
    metrics_in_file: int = 0
    rules: list[RuleResult] = Field(default_factory=list, description="NVIDIA's own.")


_SHOWN = (
    "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active", "launch__waves_per_multiprocessor",
    "launch__registers_per_thread", "launch__shared_mem_per_block", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct", "smsp__thread_inst_executed_per_inst_executed.ratio",
)  # fmt: skip


def ncu_summary(profile: Profile, ncu_kernel: NcuKernel | None, limit: int, offset: int = 0) -> NcuSummary:
    from aisp_mcp.profile.insights.engine import insights

    rows = sorted(profile.kernels, key=lambda k: -(k.duration_ns or 0))
    listed = [ncu_kernel] if ncu_kernel else rows[offset : offset + limit]
    judged = profile if ncu_kernel is None else profile.model_copy(update={"kernels": [ncu_kernel]})
    findings = insights(judged).found
    return NcuSummary(
        source=profile.source,
        devices=profile.devices[:8],
        launches=len(rows),
        kernels=[_brief(k) for k in listed],
        kernels_left_out=max(0, len(rows) - offset - len(listed)),
        insights=[brief(i) for i in findings[:6]],
        opening=opening(judged, findings) + [Statement(text=text, rows=[]) for text in profile.diagnostics[:4]],
        limiter=ncu_kernel.limiter if ncu_kernel else None,
        metrics={name: ncu_kernel.metrics[name] for name in _SHOWN if name in ncu_kernel.metrics} if ncu_kernel else {},
        marks=marks(ncu_kernel) if ncu_kernel else {},
        metrics_in_file=len(ncu_kernel.metrics) if ncu_kernel else 0,
        rules=_rules(ncu_kernel.rules) if ncu_kernel else [],
    )


def _rules(rules: Sequence[RuleResult]) -> list[RuleResult]:
    """Largest estimates first."""
    strongest = sorted(rules, key=lambda r: -(r.speedup or 0.0))[:8]
    return [r.model_copy(update={"text": shorten(r.text, 300)}) for r in strongest]


def _brief(kernel: NcuKernel) -> KernelBrief:
    limiter = kernel.limiter
    return KernelBrief(
        id=kernel.id,
        kernel=shorten(kernel.name, _NAME),
        duration_ns=kernel.duration_ns,
        bound=limiter.bound if limiter else None,
        why=limiter.why if limiter else None,
    )


def difference(compared: Difference, limit: int, offset: int = 0) -> Difference:
    """The largest changes with short names."""

    def rows(table: Sequence[Delta], most: int) -> list[Delta]:
        return [d.model_copy(update={"name": shorten(d.name, _NAME)}) for d in table[offset : offset + most]]

    return compared.model_copy(
        update={
            "explained_by": shorten(compared.explained_by, 200) if compared.explained_by else None,
            "kernels": rows(compared.kernels, limit),
            "memory": rows(compared.memory, 5),
            "api": rows(compared.api, 5),
            "left_out": max(0, max(len(t) for t in (compared.kernels, compared.memory, compared.api)) - offset - limit),
        }
    )


def ncu_difference(compared: NcuDifference, limit: int, offset: int = 0) -> NcuDifference:
    end = offset + min(limit, 8)
    shown = [s.model_copy(update={"kernel": shorten(s.kernel, _NAME)}) for s in compared.matched[offset:end]]
    only = [
        [shorten(name, _NAME) for name in names[offset : offset + limit]]
        for names in (compared.only_a, compared.only_b)
    ]
    left = max(0, len(compared.matched) - end)
    return compared.model_copy(update={"matched": shown, "only_a": only[0], "only_b": only[1], "left_out": left})
