"""One benchmark of one replicate: rounds in the harness's order, interleaved over the processes."""

from __future__ import annotations

import base64
import math
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aisp_mcp.gate.workloads.processes import MeasuredProcess, cores
from aisp_mcp.judge import answers, placement
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import Preset, Role

SLOW_CALL_S, LONG_CALL_S = 0.05, 1.0  # longer calls get three palindromes; even longer ones get one, without a warm-up
MAX_CALLS = 1_000_000
LONGEST_ROUND_S = 0.2  # of a head that is much slower than the base, or of a call that is tried twice
ROUND_S = 0.01  # the pipe costs a round about 50 µs
UNITS_S = 0.1  # of a round, with all setups
MUCH_FASTER = 4  # a head's round may be that much shorter before it gets more calls


@dataclass(frozen=True)
class BenchmarkReplicate:
    """A benchmark in one set of processes. seconds: per call, by role. changed: the candidate's result differs."""

    log_ratio: float
    noise: float
    seconds: Mapping[Role, float]
    changed: bool = False


class MissingBenchmark(str):
    """Why the head no longer measures what the base measures."""


def measure(processes: Mapping[Role, MeasuredProcess], name: str, preset: Preset) -> BenchmarkReplicate | str:
    """Times of one benchmark, or a text that says why there are none."""
    ready = {role: process.until_ready(name) for role, process in processes.items()}
    problems = [f"{role.label}: {processes[role].problem}" for role, message in ready.items() if message is None]
    answered = {role: message for role, message in ready.items() if message is not None}
    try:
        if problems:
            return (MissingBenchmark if [*answered] == [Role.BASELINE, Role.BASELINE_REPEAT] else str)(
                "; ".join(problems)
            )
        # Both must time themselves: a head that moved its work to a setup would have nothing to time.
        own_clock = all(message["own_clock"] for message in answered.values())
        with placement.watching(cores()):
            rows = _rounds(processes, preset, answered, own_clock)
    except EOFError as error:
        return str(error)
    finally:
        for role in answered:
            processes[role].finish(name)
    return _reduced(rows, answered)


def _rounds(
    processes: Mapping[Role, MeasuredProcess], preset: Preset, ready: Mapping[Role, Mapping[str, Any]], own_clock: bool
) -> list[tuple[Role, float]]:
    """(role, seconds per call) of all rounds. ready: what each process said before them."""
    call_s, units = max(message["seconds"] for message in ready.values()), ready[Role.CANDIDATE].get("units")
    if call_s >= ROUND_S and not units:
        call_s = _later_call_s(processes, own_clock)
    most = _most_units(processes[Role.BASELINE], own_clock) if units and call_s < ROUND_S else MAX_CALLS
    calls = dict.fromkeys(Role, _calls(processes, call_s, own_clock, most))
    # Calls that a setup precedes are handed over one by one.
    if min(call_s, ready[Role.CANDIDATE]["seconds"]) < LONG_CALL_S and not units:
        calls[Role.CANDIDATE] = _of_head(processes[Role.CANDIDATE], calls[Role.CANDIDATE], own_clock)
    for role, process in processes.items() if call_s < ROUND_S else ():
        process.round(calls[role], own_clock)  # warm-up
    palindromes = 1 if call_s > LONG_CALL_S else 3 if call_s > SLOW_CALL_S else preset.palindromes
    chosen = replace(preset, palindromes=palindromes)
    order = [role for half in chosen.half_palindromes(random.Random()) for role in half]
    return [(role, processes[role].round(calls[role], own_clock) / calls[role]) for role in order]


def _later_call_s(processes: Mapping[Role, MeasuredProcess], own_clock: bool) -> float:
    """Seconds of a call of the slowest process. A first call also loads, compiles and fills caches."""
    longest_s = 0.0
    for process in processes.values():
        seconds = process.round(1, own_clock)
        if ROUND_S <= seconds < LONGEST_ROUND_S:  # it may have waited for a core
            seconds = min(seconds, process.round(1, own_clock))
        longest_s = max(longest_s, seconds)
        if longest_s >= LONG_CALL_S:
            break  # the others' second call would tell nothing, and take long
    return longest_s


def _most_units(process: MeasuredProcess, own_clock: bool) -> int:
    """Calls of a round if each needs a setup and a fork, which take time as well."""
    spent_s = math.inf
    for _ in range(2):
        begin = time.perf_counter()
        process.round(1, own_clock)
        spent_s = min(spent_s, time.perf_counter() - begin)
    return max(1, int(UNITS_S / spent_s))


def _calls(processes: Mapping[Role, MeasuredProcess], call_s: float, own_clock: bool, most: int) -> int:
    """Calls that fill a round of the base; fewer if a round of a much slower head would take too long."""
    if call_s >= ROUND_S:
        return 1
    calls = _filling(processes[Role.BASELINE], ROUND_S, most, own_clock)
    return _filling(processes[Role.CANDIDATE], LONGEST_ROUND_S, calls, own_clock)


def _of_head(head: MeasuredProcess, calls: int, own_clock: bool) -> int:
    """Calls of a head's rounds: as many as of the base's, or enough to fill a round of a much faster head. Of a round
    of one short call, the pipe and cold caches would be most of the time.
    """
    seconds = min(head.round(calls, own_clock) for _ in range(2))
    return _filling(head, ROUND_S, MAX_CALLS, own_clock, calls) if MUCH_FASTER * seconds < ROUND_S else calls


def _filling(process: MeasuredProcess, round_s: float, most: int, own_clock: bool, calls: int = 1) -> int:
    """Number of calls that take this long, from `calls` to `most`; the first call, which loads code and fills caches,
    does not count.
    """
    while calls < most:
        seconds = process.round(calls, own_clock)
        if seconds >= round_s:
            seconds = min(seconds, process.round(calls, own_clock))  # the first may have waited for a core
        if seconds >= round_s:
            break
        calls = min(most, max(2 * calls, math.ceil(calls * min(round_s / max(seconds, 1e-7), 20.0))))
    return calls


def _reduced(rows: list[tuple[Role, float]], ready: Mapping[Role, Mapping[str, Any]]) -> BenchmarkReplicate | str:
    """ready: what each process said before its rounds."""
    try:
        reduced = stats.replicate_log_ratio(rows)
    except stats.UnusableError as error:
        return str(error)
    seconds = {role: statistics.median(s for r, s in rows if r is role) for role in ready}
    base, again, candidate = (ready[role] for role in Role)
    changed = not _differ(base, again) and _differ(base, candidate) is True
    return BenchmarkReplicate(reduced.log_ratio, reduced.noise, seconds, changed)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return True if two processes had different results, beyond the test's tolerance; None if unknown."""
    if "answer" in one and "answer" in other:
        expected, found = (base64.b64decode(each["answer"]) for each in (one, other))
        return answers.difference(expected, found, one["rtol"], one["atol"]) is not None
    return None if one["digest"] is None else one["digest"] != other["digest"]
