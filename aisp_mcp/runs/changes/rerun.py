"""Calls that measure a run's subject again, for runs whose subject is not a target of a suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.runs.changes.records import Recommendation
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.run_kind import RunKind

RUN = "aisp_run_benchmarks"
LONGEST = 2000  # characters of a call; a candidate can also be a text of thousands of lines


def of_its_kind(ctx: Context, run: Run, calls: Iterable[Recommendation]) -> list[Recommendation]:
    """The calls, in which those that would run targets repeat the run's own call instead, if it ran none.

    A call that is too long to repeat is left out.
    """
    if run.kind is RunKind.BENCH:
        return list(calls)
    changed = [_again(ctx, run, call) if call.tool == RUN else call for call in calls]
    return [call for call in changed if call is not None]


def _again(ctx: Context, run: Run, call: Recommendation) -> Recommendation | None:
    if run.kind is RunKind.OPTIMIZE:
        session = next((each.candidate.rpartition("_")[0] for each in run.comparisons), "")
        args: dict[str, Any] = {"session": session} if session else {}
        return Recommendation(tool="aisp_optimize_finish", args=args, why="it measures the leaders again")
    try:
        job = ctx.store.job(run.id)
    except NotFound:  # of another machine, or from before jobs were kept
        return None
    args = {name: value for name, value in job.params.items() if value not in (None, False, [], {}, "")}
    args |= {name: of_run for name, of_run in run.commits.items() if str(args.get(name)).startswith("last")}
    args["preset"] = call.args["preset"]
    return Recommendation(tool=job.tool, args=args, why=call.why) if len(str(args)) <= LONGEST else None
