"""A model of three processes on a GPU and of the verifier, which the parent asks for rounds. No GPU is needed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import Account, Round, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.parent.processes.confined import WorkerGone
from aisp_mcp.judge.parent.session import PhaseTimer, Session
from aisp_mcp.judge.parent.telling import Telling
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.protocol.draws.rng import MODES
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.messages import DUMMY, GATE, ISOLATED, NO_COPY, STORE, TOUCH
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import CAN_WAIT, ELAPSED_NS, REFUSED
from aisp_mcp.judge.verifier import handoff_gpu as handoff

X, OUT = (TensorSpec(name, "float32", (8,), (1,), 4) for name in ("x", "out"))
LAYOUT = Layout((), (X,), (OUT,), 300)
BASE = 1 << 20  # where a worker says that its memory begins
CALL, COPY, HOST = 20e-6, 30e-6, 50e-6  # per call: on the device, of inputs and outputs, until the host has laid it out
STORED, ANEW = 10e-6, 300e-6  # per call: a copy of outputs alone, and preparing for inputs at a new address
BEGINS, BEGINS_OPENLY, DUMMY_CALL = 50e-6, 1.5e-3, 60e-6
IDLE = 10e-6  # of the smallest kernel
ALLOCATED = 1e-3  # memory that a baseline returned after its round
TIMED = 200e-6  # a call of a usual round, with flush and copies
TURNS = 290e-6  # what it takes that two processes take turns on the device


class Process:
    """A worker as the parent sees it. Seconds per call are HOST without the gate, where that is more."""

    def __init__(self, verifier: Verifier, call_s: float = CALL, *, waits: bool = True, most: int = 1000, **odd: bool):
        self.verifier, self.call_s, self.most, self.odd = verifier, call_s, most, odd
        self.asked: list[tuple[int, int]] = []
        self.restless_s = 0.0  # of its host, in a call by itself
        self.returns_memory = self.lacks_memory = False
        self.name, self.oom_kills = "a worker", 0
        self.control = SimpleNamespace(
            read_allocations=lambda: [(BASE, 1, "aa")], addresses=[0] * 300, layout=LAYOUT, stats=[0] * 16
        )
        self.control.begin_handoff = self.control.end_handoff = lambda: None
        self.control.stats[CAN_WAIT] = int(waits)

    def refuse_work_outside(self) -> None:
        pass

    def _took(self, count: int, bits: int, begins_s: float, least_s: float) -> RoundTiming:
        self.asked.append((count, bits))
        begins_s += ALLOCATED if self.lacks_memory and not bits & GATE else 0.0
        self.lacks_memory = self.returns_memory and not bits & TOUCH
        stored_s = STORED if bits & STORE and not self.odd.get("spares") else 0.0
        if bits & DUMMY:
            self.control.stats[ELAPSED_NS] = round(1e9 * (begins_s / 2 + DUMMY_CALL))
            self.verifier.seconds = [TURNS + DUMMY_CALL] * count
            return RoundTiming(
                count, begins_s + count * (DUMMY_CALL + stored_s), [round(1e9 * DUMMY_CALL)] * count, Account()
            )
        work_s = self.call_s / 10 if self.odd.get("together") and not bits & ISOLATED else self.call_s
        anew_s = ANEW if self.odd.get("anew") else 0.0
        each = max(work_s + (stored_s + anew_s if bits & NO_COPY else COPY), least_s)
        alone = bits & ISOLATED and not (self.odd.get("by_host") and bits & GATE)
        self.verifier.seconds = [TURNS + each + self.restless_s] * count if alone else []
        self.verifier.held = bool(self.odd.get("holds") and bits & ISOLATED)
        self.control.stats[ELAPSED_NS] = round(1e9 * (begins_s / 2 + count * each))
        early = count * each * 0.75 if self.odd.get("early") and not bits & ISOLATED else 0.0
        self.verifier.probe_s += early
        self.verifier.wrong = bool(self.odd.get("wrong") or (self.odd.get("races") and bits & GATE))
        return RoundTiming(count, begins_s + count * each - early, [0] * count, Account())

    def _lay_out(self, count: int, bits: int) -> None:
        if bits & NO_COPY and not bits & DUMMY:
            first = self.control.addresses[0] + 256 if self.odd.get("moves") else BASE
            self.control.addresses[:count] = [first, *[BASE] * (count - 1)]
        self.control.stats[REFUSED] = int(bool(bits & NO_COPY) and bool(self.odd.get("raises")))

    answers_at = "/dev/null"

    def close(self) -> None:
        self.closed = True

    def run_round(self, count: int, _: float, bits: int) -> RoundTiming:
        self._lay_out(count, bits)
        return self._took(count, bits, BEGINS_OPENLY, HOST)

    def watched_round(self, count: int, deadline_s: float, bits: int, seen: Any) -> RoundTiming:
        timing = self.run_round(count, deadline_s, bits)
        if self.odd.get("ends"):
            raise WorkerGone("hang", "it gave no answer")
        return replace(timing, elapsed_s=timing.elapsed_s + seen())

    def gated_round(
        self, count: int, _: float, bits: int, patience_s: float, write_inputs: Any, seen: Any, still: Any = None
    ) -> RoundTiming | None:
        assert 0 < patience_s < 10
        self._lay_out(count, bits)
        if count > self.most and not bits & DUMMY:
            self.asked.append((count, bits))
            return None
        self.verifier.takes_turns = bool(self.odd.get("polls")) and not bits & DUMMY
        written = write_inputs()
        self.verifier.takes_turns = False
        if not written:
            return None
        timing = self._took(count, bits, BEGINS, 0.0)
        if self.odd.get("ends"):
            raise WorkerGone("hang", "it gave no answer")
        if still:
            return timing if still() else None
        return replace(timing, elapsed_s=timing.elapsed_s + seen())


class Verifier:
    """Answers at once. shared: whether outputs of several calls overlap. ahead: how often the candidate works on inputs
    while they are written. left: how often the device works for the candidate after a baseline's answer.
    """

    def __init__(self, *, shared: bool = False, ahead: float = 0, left: int = 0) -> None:
        self.shared, self.ahead, self.left = shared, ahead, left
        self.probe_s, self.wrong, self.takes_turns = IDLE, False, False
        self.seconds, self.held = list[float](), False
        self.verbs, self.posted = Counter[str](), list[tuple[str, dict[str, Any]]]()

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        assert not self.posted  # answers come in the order of requests
        self.verbs[verb] += 1
        if verb == "map_memory":
            named = bool(request["addresses"]) and all(request["addresses"])
            return {"own": bool(request["allocations"]), "whole": named and (request["apart"] or not self.shared)}
        if verb == "check":
            return {
                "failure": "call 0: wrong" if self.wrong else None,
                "code": "incorrect_output",
                "ratio": 0.0,
                "checked": 1,
            }
        if verb == "idle" and self.takes_turns:
            return {"probe_s": 0.01}
        ahead = verb == "write_staged" and self.ahead > 0 and request["worker_id"] == Role.CANDIDATE.number
        self.ahead -= ahead
        return {"probe_s": 0.01 if ahead else IDLE}

    def post(self, verb: str, **request: Any) -> None:
        self.verbs[verb] += 1
        self.posted.append((verb, request))

    def collect(self, verb: str) -> dict[str, Any]:
        request, _ = self.posted.pop(0)
        assert request == verb
        if verb == "stage":
            return {}
        if verb == "handoff_gpu":
            if self.held:
                raise BenchmarkError(handoff.HELD, "It waits for a worker's device.", "")
            return {"seconds": self.seconds, "at_s": IDLE}
        if verb == "probe" and self.left > 0:
            self.left -= 1
            return {"probe_s": 0.01, "at_s": 0.01}
        probe_s, self.probe_s = self.probe_s, IDLE
        return {"probe_s": probe_s, "at_s": probe_s}


def trial(verifier: Verifier, tight: bool = False, **candidate: Any) -> Driver:
    """One that has made its usual rounds. tight: processes take turns with the device memory."""
    options = SimpleNamespace(protections=ALL, preset=SimpleNamespace(round_s=0.015), device="cuda", size="default")
    log = SimpleNamespace(append=lambda *_, **__: None)
    opened = {
        "probe_s": IDLE,
        "layout": {"capacity": 300, "inputs": [], "tight": tight},
        "call_s": TIMED,
        "facts": {"input_kinds": MODES[1:]},
    }
    places: Any = SimpleNamespace()
    told = Telling("t", 1, lambda *_: None)
    pair = SimpleNamespace(baseline=Path(__file__))
    fixed: Any = (pair, options, opened, places, verifier, [], log, random.Random(1), PhaseTimer(), told)
    driver = Driver(Session(*fixed), 0)
    driver.call_s, driver.claimed_s = dict.fromkeys(Role, TIMED), dict.fromkeys(Role, CALL)
    workers: Any = {
        Role.BASELINE: Process(verifier),
        Role.BASELINE_REPEAT: Process(verifier),
        Role.CANDIDATE: Process(verifier, **candidate),
    }
    driver.workers = workers
    for role in BASELINES:
        workers[role].returns_memory = tight
    timed = RoundTiming(10, BEGINS_OPENLY + 10 * TIMED, [20_000] * 10, Account())
    driver.result.rounds = [Round(role, 0.0, CALL, timed) for role in Role]
    return driver


def twice_as_fast(**candidate: Any) -> Driver:
    """A trial whose calls are long compared with what a host takes."""
    driver = trial(Verifier(), call_s=10 * CALL, **candidate)
    driver.claimed_s = dict.fromkeys(Role, 10 * CALL)
    for role in BASELINES:
        driver.workers[role].call_s = 20 * CALL  # type: ignore[attr-defined]
    return driver
