"""Optimise a target with any agent: submit candidates within a budget; the best one is measured again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.optimize.records import Begun, Board, Finished, Judged
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, MS, READS, RUNS, WRITES, JobParams, JobSpec, Plan, tool
from aisp_mcp.suites.records import BenchRoots

_HERE = "the files of an optimisation lie on the machine where it was started"


class StartParams(Params):
    target: str = Field(description="Such as ch07:row_sum.")
    candidates: int = Field(default=20, ge=1, le=500)
    minutes: float = Field(default=60, gt=0, le=10_080)
    patience: int = Field(default=8, ge=1, description="Candidates without a gain that end it.")
    preset: Literal["quick", "default", "release"] = "default"
    margin: float | None = Field(default=None, ge=0, le=1)
    workspace: str | None = Field(default=None, description="Empty folder. Default: a temporary one.")
    bench_root: BenchRoots = None


@tool(cli="optimize start", effect=WRITES, cost=MS, next=("aisp_optimize_submit", "aisp_optimize_board"))
def aisp_optimize_start(p: StartParams, ctx: Context) -> Begun:
    """Begin an optimisation: a budget, and a workspace without earlier solutions."""
    from aisp_mcp.optimize import sessions
    from aisp_mcp.optimize.records import Budget

    budget = Budget(candidates=p.candidates, minutes=p.minutes, patience=p.patience)
    roots = ctx.bench_roots(p.bench_root)
    request = sessions.SessionRequest(p.target, roots, budget, p.preset, p.margin, p.workspace)
    return sessions.start(ctx, request)


class SubmitParams(JobParams):
    candidate: str = Field(max_length=200_000, description="Python file with run() or ModelNew, or its text.")
    session: str | None = Field(default=None, description="Default: newest.")


def _estimate_submit(p: SubmitParams, ctx: Context) -> Plan:
    from aisp_mcp.judge.presets import estimate_s
    from aisp_mcp.optimize import sessions
    from aisp_mcp.suites import selection

    board = sessions.look(ctx, sessions.named(ctx, p.session))
    sessions.refuse_over(board)
    text, judged = sessions.texts(ctx, board.session, p.candidate)  # a wrong name is refused before a job starts
    if judged == text:
        selection.require_candidate(p.candidate)
    seconds = estimate_s(sessions.preset_of(ctx, board.session))
    details = {"candidates_left": board.candidates_left}
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[], estimate_s=seconds, details=details)


@tool(
    cli="optimize submit",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=1800, measures=True, here=_HERE),
    needs=("torch",),
    next=("aisp_optimize_board", "aisp_optimize_finish"),
    estimate=_estimate_submit,
    verdict=True,
)
def aisp_optimize_submit(p: SubmitParams, ctx: Context) -> Judged:
    """Judge one candidate of an optimisation; faster is provisional until the end."""
    from aisp_mcp.optimize import sessions

    return sessions.submit(ctx, sessions.named(ctx, p.session), p.candidate)


class BoardParams(Params):
    session: str | None = None


@tool(cli="optimize board", effect=READS, cost=MS, next=("aisp_optimize_submit", "aisp_optimize_finish"))
def aisp_optimize_board(p: BoardParams, ctx: Context) -> Board:
    """List an optimisation's candidates, best proven gain first, the remaining budget and why it ended."""
    from aisp_mcp.optimize import sessions

    return sessions.look(ctx, sessions.named(ctx, p.session))


class FinishParams(JobParams):
    session: str | None = None
    to: str | None = Field(default=None, description="Default: in the store.")


@tool(
    cli="optimize finish",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=3600, measures=True, here=_HERE),
    needs=("torch",),
    next=("aisp_verify_bundle", "aisp_optimize_board"),
    verdict=True,
)
def aisp_optimize_finish(p: FinishParams, ctx: Context) -> Finished:
    """Measure the leaders again, name the best if one is confirmed, and bundle the evidence."""
    from aisp_mcp.optimize import sessions
    from aisp_mcp.optimize.bundle import bundles

    board = sessions.finish(ctx, sessions.named(ctx, p.session))
    bundle = bundles.of_optimization(ctx, board.session, p.to)
    return Finished(passed=board.best is not None, board=board, bundle=bundle)
