"""Sequence of one replicate of a serving benchmark, and the parent's clock over requests and tokens.

A round is a whole trace. The parent hands out each request when it is due and stamps each token when it sees it in the
ring, which it polls about every 0.3 ms: a stamp is never early, and late by at most one poll. Traces are drawn anew for
every half of a palindrome, and all three roles serve the same one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial

from aisp_mcp.bench import Request
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate, Round, RoundTiming, ServedReplicate, ServedRequest, ServedTrace
from aisp_mcp.judge.parent.timing.driver import START_DEADLINE_S, Driver
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.messages import CheckAnswer, PlannedRequest
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.token_ring import RingOverflowError, TokenRing
from aisp_mcp.judge.verdict.serving import RESOLUTION_S

PALINDROMES = 2
ALONE = 4  # requests served one by one, which give the unit of time


class WrongEmissionError(Exception):
    """A token that belongs to no request that has arrived, or one too many."""


class Delivery:
    """One trace at one worker. at_s: when each request is handed out; None: when the previous one has finished."""

    def __init__(self, ring: TokenRing, requests: Sequence[PlannedRequest], at_s: Sequence[float] | None) -> None:
        self._ring, self._requests, self._at_s = ring, requests, at_s
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.stamps_s: list[list[float]] = [[] for _ in requests]
        self.arrived_s: list[float] = []
        self.pauses_s: list[float] = []
        self._numbers = {request["id"]: number for number, request in enumerate(requests)}
        ring.reset()
        self._begin = self._last = clock()

    def look(self) -> None:
        """Stamp new tokens, then hand out the requests that are due. Raises WrongEmissionError."""
        try:
            emitted = self._ring.read()
        except RingOverflowError as error:
            raise WrongEmissionError(str(error)) from error
        now = clock()
        self.pauses_s.append(now - self._last)
        self._last = now
        for identity, token in emitted:
            self._take(identity, token, now - self._begin)
        while len(self.arrived_s) < len(self._requests) and self._due(now - self._begin):
            request = self._requests[len(self.arrived_s)]
            self.arrived_s.append(clock() - self._begin)
            self._ring.hand_out(Request(request["id"], tuple(request["prompt"]), request["tokens"]))
            if len(self.arrived_s) == len(self._requests):
                self._ring.close()

    def _due(self, passed_s: float) -> bool:
        number = len(self.arrived_s)
        if self._at_s is not None:
            return passed_s >= self._at_s[number]
        return not number or len(self.tokens[number - 1]) == self._requests[number - 1]["tokens"]

    def _take(self, identity: int, token: int, at_s: float) -> None:
        number = self._numbers.get(identity)
        if number is None or number >= len(self.arrived_s):
            raise WrongEmissionError("a token was emitted for a request that has not arrived")
        if len(self.tokens[number]) == self._requests[number]["tokens"]:
            raise WrongEmissionError(f"more tokens than requested were emitted for request {number}")
        self.tokens[number].append(token)
        self.stamps_s[number].append(at_s)

    def missing(self) -> str | None:
        """Describe the first request that was not fully served."""
        for number, (request, tokens) in enumerate(zip(self._requests, self.tokens, strict=True)):
            if len(tokens) < request["tokens"]:
                return f"{len(tokens)} of {request['tokens']} tokens were emitted for request {number}"
        return None

    def served(self, role: Role) -> ServedTrace:
        """The record of a fully served trace."""
        rows = zip(self.arrived_s, self.stamps_s, strict=True)
        requests = tuple(ServedRequest(arrived, tuple(stamps)) for arrived, stamps in rows)
        return ServedTrace(role, requests, stats.quantile(self.pauses_s, 0.95))


class ServingRun(ReplicateRun):
    """One replicate of a serving benchmark. Worker errors and wrong tokens raise ComparisonAborted."""

    def __init__(self, driver: Driver, strategy: Strategy) -> None:
        super().__init__(driver, strategy)
        self._terms = driver.session.opened["serving"]
        self._alone_s: dict[str, float] = {}

    def run(self) -> Replicate:
        """Warm up, measure single requests, serve palindromes of traces, verify all tokens."""
        driver, preset = self.driver, replace(self.session.options.preset, palindromes=PALINDROMES)
        driver.wait_ready()
        self._warm_up()
        self._measure_alone()
        driver.result = result = ServedReplicate(
            **{field.name: getattr(driver.result, field.name) for field in fields(Replicate)}
        )
        result.alone_s = self._alone_s
        for role, worker in driver.workers.items():
            driver.guarded(role, partial(worker.watch_memory, result.host_peak[role], sampling=False))
        for half in preset.half_palindromes(self.session.random):
            self._half(half)
        for role, worker in driver.workers.items():
            result.host_peak[role] = driver.guarded(role, worker.added_memory)
        return result

    def _warm_up(self) -> None:
        """Have all requests of a trace served at once; only its tokens count."""
        requests = self._draw()
        for role in Role:
            _, delivery, _ = self._serve(role, requests, [0.0] * len(requests))
            self._verify(role, requests, delivery, timed=False)

    def _measure_alone(self) -> None:
        """Have requests served one by one; the baselines' times give the unit of time."""
        served_requests, requests = list[ServedRequest](), self._draw()[:ALONE]
        for role in Role:
            served, delivery, _ = self._serve(role, requests, None)
            if role in BASELINES:
                served_requests += served.requests
            else:
                self._verify(role, requests, delivery, timed=False)
        further = [request.tpot for request in served_requests if request.tpot is not None]
        self._alone_s = {
            "ttft": statistics.median(request.ttft for request in served_requests),
            "tpot": statistics.median(further) if further else 0.0,
        }

    def _half(self, roles: Sequence[Role]) -> None:
        """Have these roles serve one new trace."""
        requests = self._draw()
        unit_s = self._request_s(requests) if self._terms["time_unit"] == "alone" else 1.0
        at_s, result = [request["at"] * unit_s for request in requests], self.driver.result
        assert isinstance(result, ServedReplicate)
        served = list[tuple[Role, Delivery]]()
        for role in roles:
            trace, delivery, timing = self._serve(role, requests, at_s)
            served.append((role, delivery))
            result.traces.append(trace)
            seconds = timing.elapsed_s / timing.count
            result.rounds.append(Round(role, seconds, seconds, timing))
            self._log_trace(trace, timing)
        for role, delivery in served:
            if role is Role.CANDIDATE:
                self._verify(role, requests, delivery, timed=True)

    def _request_s(self, requests: Sequence[PlannedRequest]) -> float:
        """Seconds that the baseline takes for a single request of mean length."""
        further = statistics.fmean(request["tokens"] for request in requests) - 1
        return self._alone_s["ttft"] + further * self._alone_s["tpot"]

    def _draw(self) -> list[PlannedRequest]:
        requests: list[PlannedRequest] = self.session.ask("draw_trace", seed=self.session.new_seed())["requests"]
        return requests

    def _serve(
        self, role: Role, requests: list[PlannedRequest], at_s: Sequence[float] | None
    ) -> tuple[ServedTrace, Delivery, RoundTiming]:
        """Have one role serve a trace to its end. Raises ComparisonAborted."""
        driver, count = self.driver, len(requests)
        worker = driver.workers[role]
        delivery = Delivery(TokenRing(worker.control), requests, at_s)
        deadline_s = START_DEADLINE_S
        if self._alone_s:
            deadline_s = 20.0 + 20 * self._request_s(requests) * count + (at_s[-1] if at_s else 0.0)
        with self.session.phase("measure"):
            try:
                timing = driver.guarded(
                    role, lambda: worker.served_round(count, deadline_s, delivery.look, RESOLUTION_S)
                )
            except WrongEmissionError as error:
                self._abort(role, "incorrect_emission", str(error))
        if missing := delivery.missing():
            self._abort(role, "incorrect_missing", missing)
        trace = delivery.served(role)
        durations_ns = [round(1e9 * request.e2e) for request in trace.requests]
        return trace, delivery, replace(timing, durations_ns=durations_ns)

    def _abort(self, role: Role, code: str, words: str) -> None:
        self.driver.abort(role, CheckAnswer(failure=words, code=code, checked=0, ratio=None))

    def _verify(self, role: Role, requests: list[PlannedRequest], delivery: Delivery, timed: bool) -> None:
        """Compare all tokens of a trace, and record how many were compared. Raises ComparisonAborted."""
        worker_id, result = self.driver.number(role), self.driver.result
        answer = self.session.ask("check_trace", worker_id=worker_id, requests=requests, answers=delivery.tokens)
        worker = self.driver.workers[role]
        self.driver.guarded(role, worker.refuse_work_outside)
        if role is Role.CANDIDATE:
            result.checked += answer["checked"] if timed else 0
            result.worst_ratio = max(result.worst_ratio, answer["ratio"] or 0.0)
        if answer["failure"]:
            self.driver.abort(role, CheckAnswer(**answer))  # type: ignore[typeddict-item]

    def _log_trace(self, trace: ServedTrace, timing: RoundTiming) -> None:
        self.session.log.append(
            "trace",
            replicate=self.driver.result.index,
            side=trace.role,
            elapsed_s=timing.elapsed_s,
            arrived_s=[request.arrived_s for request in trace.requests],
            stamps_s=[request.stamps_s for request in trace.requests],
            look_s=trace.look_s,
            account=vars(timing.account),
        )
