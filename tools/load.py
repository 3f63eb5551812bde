"""Ask a server hard, or watch it, while it measures, and see whether the measurement notices. Run: python tools/load.py

A benchmark runs many times, alternately quiet and loaded (quiet, loaded, loaded, quiet, ...). While it is loaded, 8
clients ask for the status of that very job, 1,000 times a second in all and evenly spread; when quiet, they are
connected and say nothing. Reported: the change of the median time per call of both sides and of their ratio, the rate
that was answered, latencies, and the longest that a cheap call takes during a busy tool. A change counts above its
noise floor: what a run states of its own ratio, or what two groups of quiet runs differ by in 95 of 100 such series, by
the scatter of these, if that is more. Both are needed, since a run's own floor leaves out what all its processes have
in common, such as the clocks of a GPU in that minute. With --dashboards N, N pages of a real `aisp dashboard` follow
the job instead of the clients, and its processor time is stated; --subscribers N measures that many idle streams of
events and nothing else. A series whose floor is above 1 % shows nothing. Run it on an idle machine with at least four
cores; it uses a store of its own in a temporary folder. Exit code 1 if the measurement changed by more than the floor,
the floor is too high, the rate was not reached, or a call was delayed by more than 10 ms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from load_clients import Clients
from load_dashboards import Pages, subscribers
from perf import ERAS, Figure, Server, machine, table

from aisp_mcp.judge.statistics import t_quantile

CLIENTS, RATE = 8, 1000.0
ASKED_RATE = 1.02 * RATE  # a schedule a little faster, so that the rate itself can be reached and missed
BUSY_BUDGET_MS = 10.0
MOST_FLOOR = 0.01  # what groups of quiet runs may differ by: beyond that a series cannot show that nothing changed
BUSY_S = 5
# A tool of this script's own that is busy and hears nothing, found through AISP_TOOL_MODULES.
BUSY = f"""
import time
from aisp_mcp.server.context import Context
from aisp_mcp.records import Params, Record
from aisp_mcp.server.registry import READS, S, tool

class Nothing(Params):
    pass

class Done(Record):
    seconds: float

@tool(cli="load busy", effect=READS, cost=S)
def aisp_load_busy(p: Nothing, ctx: Context) -> Done:
    \"\"\"Compute for some seconds, in Python, without a pause.\"\"\"
    end = time.monotonic() + {BUSY_S}
    while time.monotonic() < end:
        sum(range(1000))
    return Done(seconds={BUSY_S})
"""
SHOWN = ("target", "verdict", "ratio", "interval", "noise_floor", "time_s", "clock", "isolation", "flags")


class Load(Protocol):
    """Something that asks or watches while a job measures. stop: what it saw, by name."""

    def start(self, job_id: str) -> None: ...

    def stop(self) -> dict[str, Any]: ...


def benchmark(server: Server, target: str, preset: str, load: Load | None) -> dict[str, Any]:
    """Measure one target, under a load or none; return the verdict and what was observed meanwhile."""
    envelope = server.call("aisp_run_benchmarks", {"targets": [target], "preset": preset, "wait_s": 0, "confirm": True})
    job_id = envelope["job"]["job_id"]
    began = time.monotonic()
    if load:
        load.start(job_id)
    answer = None
    while answer is None:
        answer = server.call("aisp_job_wait", {"job_ids": [job_id], "timeout_s": 45})["result"].get("answer")
    seen = load.stop() if load else {}
    if "error" in answer:
        raise RuntimeError(f"{target}: {answer['error']}")
    [row] = answer["result"]["rulings"]
    turn = {"asked": load is not None, "seconds": round(time.monotonic() - began, 2)}
    return turn | {"noise": answer["result"]["noise"], **{name: row[name] for name in SHOWN}, **seen}


def disturbance(
    home: Path, target: str, preset: str, turns: int, until: float, dashboards: int
) -> Iterator[dict[str, Any]]:
    """The benchmark, quiet and loaded, in pairs; a new pair begins only when there should be time for it."""
    other = Pages(dashboards, home) if dashboards else Clients(CLIENTS, home, ASKED_RATE)
    with Server(ERAS[-1], home) as server, other as load:
        server.handshake()
        for number in range(turns):
            began = time.monotonic()
            for busy in (False, True) if number % 2 == 0 else (True, False):
                yield benchmark(server, target, preset, load if busy else None)
            if 2 * time.monotonic() - began > until:
                return


def judged(turns: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """The figures of the turns so far."""
    quiet, busy = [turn for turn in turns if not turn["asked"]], [turn for turn in turns if turn["asked"]]
    stated, measured = ([turn["noise_floor"] for turn in some] for some in (quiet, busy))
    yield Figure("noise floor of the ratio, quiet", *_median(stated))
    yield Figure("noise floor of the ratio, asked", *_median(measured))
    for some, name in ((quiet, "quiet"), (busy, "asked")):
        wide = [turn["interval"][1] / turn["interval"][0] for turn in some]
        yield Figure(f"interval of the ratio, high over low, {name}", *_median(wide))
    floor = statistics.median(stated)
    for index, name in enumerate(("baseline", "candidate")):
        times = [[turn["time_s"][index] for turn in some] for some in (quiet, busy)]
        yield from _change(name, "s", times[0], times[1], floor)
    ratios = [[turn["ratio"] for turn in some] for some in (quiet, busy)]
    yield from _change("their ratio", "", ratios[0], ratios[1], floor)
    yield from _watched(busy) if "pages" in busy[0] else _asked(busy)


def _watched(turns: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Cost of the pages that watched."""
    for name, unit in (("pages", ""), ("events", ""), ("fetched", ""), ("server_processor_s", "s")):
        yield Figure(name.replace("_", " "), *_median([turn[name] for turn in turns], unit))
    shares = [100 * turn["server_processor_share"] for turn in turns]
    yield Figure("server's processor time, of a core", *_median(shares, "%"))


def _asked(turns: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Rate and latency of the calls."""
    rates = [turn["calls_per_s"] for turn in turns]
    yield Figure("calls a second that were not answered", max(0.0, RATE - min(rates)), "", 0.0, rates)
    for name in ("p50", "p99", "max"):
        values = [turn[f"call_ms_{name}"] for turn in turns]
        yield Figure(f"aisp_job_status {name}", statistics.median(values), "ms", None, values)


def _median(values: list[float], unit: str = "") -> tuple[float, str, None, list[float]]:
    return statistics.median(values), unit, None, values


def _change(name: str, unit: str, quiet: list[float], busy: list[float], stated: float) -> Iterator[Figure]:
    """The means of the runs' values, by how much they differ, and by how much they may differ by chance."""
    means = statistics.fmean(quiet), statistics.fmean(busy)
    yield Figure(f"{name}, quiet", means[0], unit, None, quiet)
    yield Figure(f"{name}, asked", means[1], unit, None, busy)
    floor = math.inf
    if len(quiet) > 1:
        error = statistics.stdev(quiet) / means[0] * math.sqrt(1 / len(quiet) + 1 / len(busy))
        floor = max(t_quantile(0.975, len(quiet) - 1) * error, stated)
    yield Figure(f"{name}, noise floor", floor, "", MOST_FLOOR, quiet)
    yield Figure(f"{name}, change", abs(means[1] / means[0] - 1), "", floor, [means[1] / means[0] - 1])


def during_a_busy_tool(home: Path, calls: int) -> Iterator[Figure]:
    """Delay of a cheap call while a tool of the same server computes in Python: the worst of them."""
    (home / "aisp_load_probe.py").write_text(BUSY)
    extra = {"AISP_TOOL_MODULES": "aisp_load_probe", "PYTHONPATH": os.pathsep.join([str(home), *sys.path[1:]])}
    with Server(ERAS[-1], home, **extra) as server:
        server.handshake()
        for _ in range(20):
            _cheap(server)
        alone = [_cheap(server) for _ in range(calls)]
        busy = {"name": "aisp_load_busy", "arguments": {}, "_meta": server.meta}
        server.send({"jsonrpc": "2.0", "id": "busy", "method": "tools/call", "params": busy})
        loaded_s = [_cheap(server) for _ in range(calls)]
        if server.skipped:
            raise RuntimeError("the busy tool ended before the calls")
    yield Figure("cheap call alone, p50", statistics.median(alone), "ms", None, alone)
    yield Figure("cheap call alone, longest", max(alone), "ms", None, alone)
    yield Figure("cheap call beside a busy tool, p50", statistics.median(loaded_s), "ms", None, loaded_s)
    delay = max(loaded_s) - statistics.median(alone)
    yield Figure("longest delay beside a busy tool", delay, "ms", BUSY_BUDGET_MS, loaded_s)


def _cheap(server: Server) -> float:
    began = time.perf_counter()
    server.call("aisp_job_list", {"limit": 1})
    return 1e3 * (time.perf_counter() - began)


def keep(file: Path | None, figures: Sequence[Figure], turns: Sequence[dict[str, Any]]) -> None:
    """Write everything so far, so that an interrupted run leaves what it has."""
    if file:
        where = f"{time.strftime('%Y-%m-%d')}, {machine()}"
        document = {"where": where, "figures": [figure._asdict() for figure in figures], "turns": list(turns)}
        file.write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure whether asking a server hard disturbs what it measures.")
    parser.add_argument("--target", default="ch15:attention", help="a benchmark target with a single candidate")
    parser.add_argument("--preset", default="default", help="quick, default or release")
    parser.add_argument("--turns", type=int, default=5, help="alternating quiet and loaded runs")
    parser.add_argument("--seconds", type=float, default=1e6, help="begin no turn that would end later than this")
    parser.add_argument("--dashboards", type=int, default=0, metavar="N", help="N pages watch, instead of clients")
    parser.add_argument("--subscribers", type=int, default=0, metavar="N", help="only measure N idle event streams")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample there")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    turns: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="aisp-load-") as folder:
        home = Path(folder)
        if options.subscribers:
            figures = list(subscribers(home, options.subscribers))
            keep(options.json, figures, turns)
            return report(figures, "idle subscribers")
        busy = [] if options.dashboards else list(during_a_busy_tool(home, 200))
        keep(options.json, busy, turns)
        for turn in disturbance(home, options.target, options.preset, options.turns, until, options.dashboards):
            turns.append(turn)
            print(json.dumps(turn), file=sys.stderr, flush=True)
            keep(options.json, [*busy, *(judged(turns) if len(turns) > 3 else [])], turns)
    return report([*busy, *judged(turns)], options.target)


def report(figures: Sequence[Figure], of: str) -> int:
    """Print the table; the exit code."""
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}, {of}\n\n{table(figures)}")
    return 0 if all(figure.passed for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
