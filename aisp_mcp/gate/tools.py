"""The gate for pull requests: two commits, one job, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.gate.records import GateReport, Outcome, Policy
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool


class GateParams(JobParams):
    base: str = Field(max_length=200, description="Revision, such as origin/main; or a run, like head.")
    head: str | None = Field(default=None, max_length=200, description="Default: the working tree.")
    targets: list[str] = Field(default_factory=lambda: ["*"], max_length=200)
    repo: str | None = None
    roots: list[str] = Field(default_factory=lambda: ["benchmarks", "labs"], max_length=20)
    preset: Literal["quick", "default", "release"] = "default"
    margin: float | None = Field(default=None, ge=0, le=1, description="Smallest slowdown that fails.")
    could_not_judge: Policy = Field(default="warn", description="Hidden by noise.")
    strict: bool = Field(default=False, description="Fail if nothing could be judged.")
    missing: Policy = "fail"
    serve: str | None = Field(default=None, max_length=4000, description="Instead: a server's command with {port}.")
    usd_per_hour: float | None = Field(default=None, gt=0)


def _estimate(p: GateParams, ctx: Context) -> Plan:
    from aisp_mcp.gate import serving, stored_runs
    from aisp_mcp.runs import commits
    from aisp_mcp.runs.endpoint import clients

    if p.serve is not None:
        serving.require_port(p.serve)
        clients.find(None)
    if stored := stored_runs.runs(ctx, p.base, p.head):
        return Plan(argv=[], timeout_s=p.timeout_s or 3600, resources=[], details={"runs": [run.id for run in stored]})
    repo = commits.repository(Path(p.repo or ".").expanduser())  # wrong names are refused before a job starts
    revisions = {name: commits.commit_of(repo, name) for name in (p.base, p.head) if name is not None}
    return Plan(
        argv=[], timeout_s=p.timeout_s or 3600, resources=[], details={"commits": revisions, "repository": str(repo)}
    )


@tool(
    cli="bench gate",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=3600, measures=True),
    needs=("torch",),
    next=("aisp_benchmark_export",),
    estimate=_estimate,
    verdict=True,
)
def aisp_benchmark_gate(p: GateParams, ctx: Context) -> GateReport:
    """Judge a change between two commits, interleaved in one job: one outcome per benchmark.

    regressed, wrong and failed never pass; could_not_judge and missing follow the given policy. The comment for a pull
    request, JUnit XML and a badge are written into the run's folder.
    """
    from aisp_mcp.gate import gate, stored_runs
    from aisp_mcp.runs import measure

    options = measure.options(ctx, measure.preset(p.preset, None), margin=p.margin)
    policies: dict[Outcome, Policy] = {"could_not_judge": p.could_not_judge, "missing": p.missing}
    repo = Path(p.repo or ".").expanduser()
    roots = [stored_runs.ROOT] if stored_runs.runs(ctx, p.base, p.head) else p.roots
    request = gate.GateRequest(repo, p.base, p.head, roots, p.targets, policies, p.usd_per_hour, p.strict, p.serve)
    report = gate.gate(ctx, request, options)
    return report.model_copy(update=_files(report, policies, ctx))


def _files(report: GateReport, policies: dict[Outcome, Policy], ctx: Context) -> dict[str, str]:
    """Write the report for people and for pipelines; paths by field of the report."""
    from aisp_mcp.gate import comment
    from aisp_mcp.runs.export import badge, junit
    from aisp_mcp.server import files

    rows = comment.of_gate(report, policies)
    about = {"run_id": report.run_id, "base": report.base, "head": report.head}
    began = ctx.clock() - report.seconds
    files_by_field = {
        "comment_path": ("comment.md", comment.gate_comment(report).encode()),
        "junit_path": ("junit.xml", junit.to_junit(rows, "performance gate", began, report.seconds, about)),
        "badge_path": ("badge.svg", badge.to_badge(rows, "performance gate")),
    }
    folder = ctx.store.run_dir(report.run_id)
    return {field: files.write(folder / name, data).path for field, (name, data) in files_by_field.items()}
