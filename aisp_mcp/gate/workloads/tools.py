"""Two commits of a repository on a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.runs.answers import Verdicts
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool


class CommitsParams(JobParams):
    base: str = Field(max_length=200)
    head: str = Field(max_length=200)
    workload: str = Field(max_length=4096, description="File with workload().")
    tests: str | None = Field(default=None, max_length=4000)
    build: str | None = Field(default=None, max_length=4000, description="Default: pip install -e .")
    python: str | None = Field(default=None, max_length=4096)
    repo: str | None = Field(default=None, max_length=4096)
    preset: Literal["quick", "default", "release"] = "default"


def _estimate(p: CommitsParams, ctx: Context) -> Plan:
    from aisp_mcp.runs import commits

    repo = commits.repository_or_bare(Path(p.repo or ".").expanduser())  # wrong names are refused before a job starts
    revisions = {name: commits.commit_of(repo, name) for name in (p.base, p.head)}
    return Plan(argv=[], timeout_s=p.timeout_s or 7200, resources=[], details={"commits": revisions})


@tool(
    cli="bench commits",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=7200, measures=True),
    next=("aisp_benchmark_export",),
    estimate=_estimate,
    verdict=True,
)
def aisp_benchmark_commits(p: CommitsParams, ctx: Context) -> Verdicts:
    """Judge two commits on a workload of yours: each is built once and tested, and both are timed interleaved."""
    from aisp_mcp.gate.workloads import judge
    from aisp_mcp.runs import answers

    request = judge.CommitsRequest(
        repo=Path(p.repo or ".").expanduser(),
        base=p.base,
        head=p.head,
        workload=Path(p.workload).expanduser(),
        tests=p.tests,
        build=p.build,
        python=p.python,
        preset=p.preset,
    )
    return answers.verdicts(judge.judge(ctx, request), evidence=False)
