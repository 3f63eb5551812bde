"""Lists and single records: verdicts, runs, jobs and profiles."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from aisp_mcp.errors import UsageError
from aisp_mcp.front.rest.answers import page_of, select_fields
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.runs import leaderboards
from aisp_mcp.runs.history import Axis, Series
from aisp_mcp.runs.history import history as in_order
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import OF_TARGETS, VerdictFilter

MAX_LIST, MAX_PROFILES, MAX_TAIL = 1000, 100, 65_536
_LEFT_OUT = {"envelope", "params", "run_dir"}
PROFILING = ("aisp_profile_nsys", "aisp_profile_ncu", "aisp_profile_torch", "aisp_profile_memory")


def filter_of(request: Request) -> VerdictFilter:
    """Return the filter in q=. Raises UsageError BAD_FILTER."""
    return parse(request.query_params.get("q", ""))


def benchmarks(request: Request, ctx: Context) -> dict[str, Any]:
    """Verdicts, newest first: ?q= filter, ?limit=, ?cursor=, ?fields=."""
    limit, cursor = page_of(request, MAX_LIST, 50)
    rows, more = ctx.store.list_verdicts(filter_of(request), limit, cursor, ctx.sees)
    fields = request.query_params.get("fields")
    data = [{**row.model_dump(mode="json"), "provisional": row.provisional} for row in rows]
    return {"rows": select_fields(data, fields), "next_cursor": more}


def summary(request: Request, ctx: Context) -> dict[str, Any]:
    """Counts by verdict, devices and targets, and the best proven gain on each device."""
    matching = filter_of(request)
    if "kind:" not in request.query_params.get("q", ""):  # head against base says nothing about a target's candidates
        matching = matching.model_copy(update={"kinds": OF_TARGETS})
    counts, latest = ctx.store.count_verdicts(matching, ctx.sees), ctx.store.latest_verdicts(matching, ctx.sees)
    return leaderboards.summary(counts, latest)


def boards(request: Request, ctx: Context) -> dict[str, Any]:
    """The best candidate of each target, for each goal, by its share of the measured ceiling."""
    return {"boards": leaderboards.leaderboards(ctx.store.latest_verdicts(filter_of(request), ctx.sees))}


def tradeoffs(request: Request, ctx: Context) -> dict[str, Any]:
    """Time ratio against memory ratio of verified variants."""
    return {"rows": leaderboards.tradeoffs(ctx.store.latest_verdicts(filter_of(request), ctx.sees))}


def history(request: Request, ctx: Context) -> dict[str, Any]:
    """One target's verdicts in order, with levels for charts: ?target=, ?axis=time or commit, ?device=, ?limit=."""
    limit, _ = page_of(request, MAX_LIST, 300)
    target, axis = request.query_params.get("target", ""), request.query_params.get("axis", Axis.TIME.value)
    if not target or axis not in list(Axis):
        raise UsageError(
            "BAD_FILTER", "Give target, and axis as time or commit.", "?target=ch07:row_sum_ones&axis=commit"
        )
    matching = VerdictFilter(target=target, device=request.query_params.get("device"))
    rows, _ = ctx.store.list_verdicts(matching, limit, None, ctx.sees)
    return {"target": target, "axis": axis, "series": [_series_data(series) for series in in_order(rows, Axis(axis))]}


def _series_data(series: Series) -> dict[str, Any]:
    points = [{"place": at, **row.model_dump()} for row, at in zip(series.rulings, series.positions, strict=True)]
    levels = [{"first": begin, "after": end, "ratio": level} for begin, end, level in series.levels]
    facts = {
        "device": series.device,
        "preset": series.preset,
        "noise_floor": series.floor,
        "left_out": series.left_out,
    }
    return {**facts, "commits": series.commits, "points": points, "levels": levels}


def runs(request: Request, ctx: Context) -> dict[str, Any]:
    """Ids of runs, newest first, at most 200."""
    limit, _ = page_of(request, 200, 50)
    return {"rows": [{"id": run_id} for run_id in ctx.store.run_ids(limit, ctx.sees)]}


def run(request: Request, ctx: Context) -> dict[str, Any]:
    """One complete run with its environment."""
    return ctx.store.run(Run, request.path_params["id"], ctx.sees).model_dump(mode="json")


def jobs(request: Request, ctx: Context) -> dict[str, Any]:
    """Jobs, newest first: ?state=, ?tool=, ?limit=, ?cursor=, ?fields=."""
    limit, cursor = page_of(request, 200, 50)
    state, tool = request.query_params.get("state"), request.query_params.get("tool")
    if state is not None and state not in list(JobState):
        raise UsageError("BAD_FILTER", f"There is no job state '{state[:40]}'.", f"States: {', '.join(JobState)}.")
    page, more = ctx.store.list_jobs(JobState(state) if state else None, tool, limit, cursor, ctx.sees)
    rows = [{**job.model_dump(mode="json", exclude=_LEFT_OUT), "subject": job.subject} for job in page]
    return {"rows": select_fields(rows, request.query_params.get("fields")), "next_cursor": more}


def job(request: Request, ctx: Context) -> dict[str, Any]:
    """One job, with its answer once it has ended."""
    data: dict[str, Any] = ctx.jobs.get(request.path_params["id"], ctx.sees).model_dump(
        mode="json", exclude={"run_dir"}
    )
    return data


def job_log(request: Request, ctx: Context) -> dict[str, Any]:
    """The end of a job's output: ?bytes=, at most 65,536."""
    size = request.query_params.get("bytes", "4000")
    if not size.isdecimal() or not 1 <= int(size) <= MAX_TAIL:
        raise UsageError("BAD_PAGE", f"bytes is 1 to {MAX_TAIL}.")
    job = ctx.jobs.get(request.path_params["id"], ctx.sees)
    return {"id": job.id, "state": job.state.value, "log": ctx.jobs.log_tail(job.id, int(size))}


def profiles(_: Request, ctx: Context) -> dict[str, Any]:
    """Profiles that jobs recorded, newest first, with the job's arguments."""
    return {"rows": [job.model_dump(include={"id", "tool", "created_at", "params"}) for job in profiling_jobs(ctx)]}


def profiling_jobs(ctx: Context) -> list[Job]:
    """Jobs that recorded a profile, newest first."""
    jobs = [job for tool in PROFILING for job in ctx.store.list_jobs(JobState.SUCCEEDED, tool, 50, None, ctx.sees)[0]]
    return sorted(jobs, key=lambda job: job.created_at, reverse=True)[:MAX_PROFILES]
