"""The self-test: on this machine, known attacks must fail and honest look-alikes must pass."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool
from aisp_mcp.validity.records import Selftest

Category = Literal[
    "timing",
    "output",
    "workload",
    "location",
    "memory",
    "cuda",
    "compile",
    "distributed",
    "environment",
    "statistical",
    "evaluation",
]
SECONDS_PER_CASE = 6.0


class SelftestParams(JobParams):
    category: list[Category] = Field(default_factory=list)
    issue: list[int] = Field(default_factory=list, max_length=200, description="Numbers of issues.")
    kind: Literal["attack", "honest", "both"] = Field(default="attack", description="Attacks, or their honest twins.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: CPU, and the GPU if there is one."
    )
    all: bool = Field(default=False, description="Every case instead of one per issue.")


def _estimate(p: SelftestParams, ctx: Context) -> Plan:
    from aisp_mcp.validity import selftest

    some = selftest.chosen(p.category, p.issue)
    cases = selftest.choose(some, selftest.KINDS[p.kind], selftest.devices(p.device), p.all)
    details = {"cases": [case.name for case in cases]}
    seconds = SECONDS_PER_CASE * len(cases)
    return Plan(argv=[], timeout_s=p.timeout_s or 3600, resources=[], estimate_s=seconds, details=details)


@tool(
    cli="bench selftest",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=3600, measures=True),
    needs=("torch",),
    next=("aisp_run_benchmarks",),
    estimate=_estimate,
    verdict=True,
)
def aisp_validity_selftest(p: SelftestParams, ctx: Context) -> Selftest:
    """Try the known ways to fake a speed-up on this machine and report which ones the harness stops here.

    One attack per validity issue: its finding, the ratio reported and what it gains undefended. Thirteen
    issues cannot be attacked by software; they answer with the facts that disclose them. Skipped is never passed.
    """
    from aisp_mcp.validity import selftest

    some = selftest.chosen(p.category, p.issue)
    return selftest.run(ctx, some, selftest.KINDS[p.kind], selftest.devices(p.device), p.all)
