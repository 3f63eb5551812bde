"""An engine as a plain program that serves the beginning of a trace, by this process's clock. Nothing is
judged here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from aisp_mcp.bench import Arrival, Request, Rng, ServingBenchmark
from aisp_mcp.judge.candidate.serving import NAP_S, entry

_REQUESTS = 8  # a profiler keeps an event of some 500 bytes for every operation of every token
_ALONE = 2  # requests served one by one, the last of which gives the unit of time


class Trace:
    """The requests of one trace as an engine gets them. unit_s: seconds of one unit of the arrivals' times."""

    def __init__(self, arrivals: Sequence[Arrival], unit_s: float) -> None:
        self._left = [
            (arrival.at * unit_s, Request(number, tuple(arrival.prompt), arrival.tokens))
            for number, arrival in enumerate(arrivals)
        ]
        self._begin = time.perf_counter()

    def poll(self) -> list[Request]:
        """Requests that became due since the last call."""
        now = time.perf_counter() - self._begin
        due = [request for at, request in self._left if at <= now]
        del self._left[: len(due)]
        return due

    def wait(self) -> list[Request]:
        """The same, but wait until there is one or the trace has ended."""
        while not (requests := self.poll()) and self._left:
            time.sleep(NAP_S)
        return requests

    @property
    def closed(self) -> bool:
        """True if no more will come."""
        return not self._left


def engine(
    torch: Any, spec: ServingBenchmark, setup: dict[str, Any], params: dict[str, Any], rng: Rng
) -> tuple[Callable[..., Any], list[dict[str, Any]]]:
    """The engine as a function of a trace, and the first requests of a trace. It has served some requests before this
    returns.
    """
    serve, static = entry(setup, params)
    arrivals = spec.trace(rng)[:_REQUESTS]

    def run(arrivals: Sequence[Arrival], unit_s: float) -> None:
        with torch.inference_mode():
            serve(Trace(arrivals, unit_s), lambda *_: None, **static)

    alone_s = _alone_s(run, arrivals)
    return run, [{"arrivals": arrivals, "unit_s": alone_s if spec.time_unit == "alone" else 1.0}]


def _alone_s(run: Callable[..., Any], arrivals: Sequence[Arrival]) -> float:
    """Seconds of a single request of mean length."""
    tokens = round(statistics.fmean(arrival.tokens for arrival in arrivals))
    begin = time.perf_counter()
    for arrival in arrivals[:_ALONE]:
        begin = time.perf_counter()
        run([arrival._replace(at=0.0, tokens=tokens)], 1.0)
    return time.perf_counter() - begin
