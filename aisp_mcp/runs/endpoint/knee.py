"""The knee of a server's load curve: the number of requests at once from which more of them only wait.

Under few requests a server answers in the time R that each needs alone; under many it answers at its highest rate X.
Both lines meet at X * R requests at once (the asymptotic bounds of closed queueing systems). Below, throughput grows
with the load; above, latency does. Every repeat gives one knee, so the interval is that of repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.statistics import UnusableError
from aisp_mcp.runs.endpoint.measuring import AGAIN, BASELINE, CANDIDATE, Runs, duration
from aisp_mcp.runs.endpoint.records import Knee
from aisp_mcp.runs.endpoint.servers import Server
from aisp_mcp.runs.imports.readers.requests import Request

# Chosen: nearer to an end of the measured loads, the curve beyond it would have to be known.
NEAR = 0.1


def knees(servers: Sequence[Server], measured: Sequence[Runs]) -> list[Knee]:
    """The knee of each server; none if fewer than two numbers of requests at once were measured."""
    closed = [runs for runs in measured if runs.load.streams is not None]
    if len(closed) < 2:
        return []
    roles = [(BASELINE, AGAIN), (CANDIDATE,)]
    return [knee for server, names in zip(servers, roles, strict=False) if (knee := _knee(server, closed, names))]


def _knee(server: Server, closed: Sequence[Runs], roles: Sequence[str]) -> Knee | None:
    repeats = [
        values
        for role in roles
        for repeat in zip(*(runs.by_role.get(role, []) for runs in closed), strict=True)
        if (values := _values(repeat))
    ]
    if not repeats:
        return None
    logs = [math.log(rate * alone_s) for rate, alone_s in repeats]
    try:
        interval = stats.t_interval(logs)
        ends = [math.exp(interval.low), math.exp(interval.high)]
    except UnusableError:  # a single repeat, or all alike
        ends = [] if len(logs) < 2 else [math.exp(logs[0])] * 2
    at, rate = math.exp(fmean(logs)), fmean(rate for rate, _ in repeats)
    fewest, most = (pick(runs.load.streams or 0 for runs in closed) for pick in (min, max))
    return Knee(url=server.url, concurrency=at, interval=ends, requests_per_s=rate,
                sentence=_sentence(at, ends, rate, fewest, most))  # fmt: skip


def _values(repeat: Sequence[Sequence[Request]]) -> tuple[float, float] | None:
    """The highest rate of answers and the lowest mean latency over the loads of one repeat."""
    seconds = [duration(list(requests)) for requests in repeat]
    rates = [len(requests) / taken for requests, taken in zip(repeat, seconds, strict=True) if requests and taken]
    latencies = [fmean(request.latency_s for request in requests) for requests in repeat if requests]
    return (max(rates), min(latencies)) if len(rates) == len(repeat) else None


def _sentence(at: float, ends: Sequence[float], rate: float, fewest: int, most: int) -> str:
    low, high = ends or (at, at)
    if ends and low < (1 + NEAR) * fewest and high > (1 - NEAR) * most:
        return f"the knee is not shown: its interval, {low:.3g}-{high:.3g}, covers all loads; add loads or repeats"
    if high > (1 - NEAR) * most:
        return f"no knee up to concurrency {most}: throughput still grows; measure a higher load"
    if low < (1 + NEAR) * fewest:
        return f"the knee is at or below concurrency {fewest}; measure a lower load"
    bounds = f" ({low:.3g}-{high:.3g})" if ends else ""
    return f"knee at concurrency {at:.3g}{bounds}, {rate:.3g} requests/s: beyond it, requests wait"
