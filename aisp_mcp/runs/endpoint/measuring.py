"""Measure one or two servers: test the client on a stub, then run the repeats, interleaved if there are two.

Two servers are judged like any pair: log-ratios of medians over interleaved repeats, against the baseline's own noise.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.verdict import Flag, all_passed
from aisp_mcp.judge.verdict.verdict import judge
from aisp_mcp.runs.endpoint import clients
from aisp_mcp.runs.endpoint.clients import Client, Job
from aisp_mcp.runs.endpoint.records import Metric, MetricRatio, SelfTest, ServerFigures, ServerVerdict
from aisp_mcp.runs.imports.readers.requests import Request

BASELINE, AGAIN, CANDIDATE = "baseline", "again", "candidate"
STUB_TTFT_S, STUB_ITL_S, STUB_TOKENS = 0.1, 0.02, 16
KNOWN_S = {"ttft": STUB_TTFT_S, "tpot": STUB_ITL_S}
SLACK = {"ttft": 0.3, "tpot": 0.2}  # share of the known latency that a client may add
STUB_REQUESTS = 12
SHARE = "good share"


@dataclass(frozen=True)
class Server:
    """A server and the model to request."""

    url: str
    model: str


@dataclass(frozen=True)
class Plan:
    """The same load for every run. slo_s: limits of a good request's (TTFT, TPOT), None for each that is not set."""

    client: Client
    program: str
    concurrency: int
    requests: int
    output_tokens: int
    prompt_words: int
    repeats: int
    slo_s: tuple[float | None, float | None]
    folder: Path
    timeout_s: float
    prompts: tuple[str, ...] = ()

    def send(self, server: Server, label: str) -> list[Request]:
        """One run of the client against a server, with new prompts."""
        job = Job(
            server.url,
            server.model,
            self.concurrency,
            self.output_tokens,
            self._prompts(),
            self.folder / label,
            self.timeout_s,
        )
        return clients.run(self.client, self.program, job)

    def _prompts(self) -> list[str]:
        if self.prompts:
            return list(itertools.islice(itertools.cycle(self.prompts), self.requests))
        return clients.prompts(self.requests, self.prompt_words, secrets.randbits(48))


@dataclass
class Runs:
    """Answered requests of each repeat, by role."""

    by_role: dict[str, list[list[Request]]] = field(default_factory=dict)

    def add(self, role: str, requests: list[Request]) -> None:
        self.by_role.setdefault(role, []).append(requests)


def self_test(plan: Plan) -> SelfTest:
    """The client against a stub with known latencies, repeated if necessary. Raises Unavailable CLIENT_UNTRUSTED."""
    for _ in range(2):  # something else on the machine may disturb one reading
        measured = medians(_stub_requests(plan))
        text = ", ".join(
            f"{name} {1000 * measured.get(name, 0.0):.1f} ms for {1000 * s:.0f}" for name, s in KNOWN_S.items()
        )
        if all(abs(measured.get(name, 0.0) / KNOWN_S[name] - 1) <= SLACK[name] for name in KNOWN_S):
            return SelfTest(
                client=plan.client.name,
                ttft_ms=[1000 * STUB_TTFT_S, 1000 * measured["ttft"]],
                tpot_ms=[1000 * STUB_ITL_S, 1000 * measured["tpot"]],
                sentence=f"{plan.client.name} read {text} on a stub; its overhead is in every figure below.",
            )
    raise Unavailable(
        "CLIENT_UNTRUSTED",
        f"{plan.client.name} misread a stub with known latencies: {text}.",
        "Lower the concurrency, run the client on an idle machine, or use another client.",
    )


def _stub_requests(plan: Plan) -> list[Request]:
    with stub(STUB_TTFT_S, STUB_ITL_S, STUB_TOKENS) as url:
        count = max(STUB_REQUESTS, 2 * plan.concurrency)
        sent, folder = clients.prompts(count, 10, 0), plan.folder / "self-test"
        job = Job(url, "aisp-stub", plan.concurrency, STUB_TOKENS, sent, folder, plan.timeout_s)
        return clients.run(plan.client, plan.program, job)


@contextmanager
def stub(ttft_s: float, itl_s: float, tokens: int) -> Iterator[str]:
    """Start a stub server in a separate process; yield its address."""
    words = ["--ttft-s", str(ttft_s), "--itl-s", str(itl_s), "--tokens", str(tokens)]
    argv = [sys.executable, "-P", "-m", "aisp_mcp.runs.endpoint.stub", *words]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise ProcessError("CRASHED", "The stub server did not start.", None)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def measure(plan: Plan, servers: list[Server], report: Callable[[float, float, str], None] = lambda *_: None) -> Runs:
    """All repeats. With two servers, each repeat is baseline, candidate and baseline again, in random order."""
    runs, draw = Runs(), random.SystemRandom()
    roles = (
        {BASELINE: servers[0]}
        if len(servers) == 1
        else dict(zip((BASELINE, CANDIDATE, AGAIN), (servers[0], servers[1], servers[0]), strict=True))
    )
    total = plan.repeats * len(roles)
    for repeat in range(plan.repeats):
        order = draw.sample(list(roles), len(roles))
        for index, role in enumerate(order):
            report(repeat * len(roles) + index, total, f"repeat {repeat + 1} of {plan.repeats}: {role}")
            runs.add(role, plan.send(roles[role], f"{repeat}-{role}"))
    report(total, total, "done")
    return runs


def medians(requests: list[Request]) -> dict[str, float]:
    """Medians over requests, in seconds: ttft, tpot, latency."""
    columns = {
        "ttft": [request.ttft_s for request in requests],
        "tpot": [value for request in requests if (value := request.tpot_s) is not None],
        "latency": [request.latency_s for request in requests],
    }
    return {name: stats.quantile(values, 0.5) for name, values in columns.items() if values}


def figures(plan: Plan, server: Server, repeats: list[list[Request]]) -> ServerFigures:
    """Metrics of one server over its repeats. Raises Unavailable NO_ANSWERS."""
    answered = [requests for requests in repeats if requests]
    everything = [request for requests in answered for request in requests]
    if not everything:
        raise Unavailable("NO_ANSWERS", f"{server.url} answered no request.", "See client.log in the job's folder.")
    rows = [_row(plan, requests) for requests in answered]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return ServerFigures(
        url=server.url,
        model=server.model,
        metrics=[_metric(name, [row[name] for row in rows]) for name in names],
        output_tokens=sum(request.output_tokens for request in everything) / len(everything),
        requests=len(everything),
        failed=plan.requests * len(repeats) - len(everything),
    )


def _row(plan: Plan, requests: list[Request]) -> dict[str, float]:
    """One repeat's values by the name of the metric."""
    row = {f"{name} (s)": value for name, value in medians(requests).items()}
    tail = 0.99 if len(requests) >= stats.P99_CALLS else 0.95
    row[f"p{100 * tail:.0f} ttft (s)"] = stats.quantile([request.ttft_s for request in requests], tail)
    if seconds := duration(requests):
        row["requests (1/s)"] = len(requests) / seconds
        row["output tokens (1/s)"] = sum(request.output_tokens for request in requests) / seconds
        if any(plan.slo_s):
            good = sum(is_good(request, plan.slo_s) for request in requests)
            row["goodput (1/s)"] = good / seconds
            row[f"{SHARE} (of requests sent)"] = good / plan.requests
    return row


def duration(requests: list[Request]) -> float | None:
    """Seconds from the first request sent to the last token received; None if the client gives no times."""
    begins = [request.begin_s for request in requests if request.begin_s is not None]
    if len(begins) < len(requests):
        return None
    return max(request.begin_s + request.latency_s for request in requests if request.begin_s is not None) - min(begins)


def is_good(request: Request, slo_s: tuple[float | None, float | None]) -> bool:
    """Return True if the request stayed within every latency that is set."""
    ttft, tpot = slo_s
    return (ttft is None or request.ttft_s <= ttft) and (
        tpot is None or request.tpot_s is None or request.tpot_s <= tpot
    )


def _metric(title: str, values: list[float]) -> Metric:
    name, _, unit = title.partition(" (")
    if len(values) < 2:
        return Metric(name=name, unit=unit.rstrip(")"), value=values[0], interval=[], repeats=values)
    mean = sum(values) / len(values)
    try:
        t_interval = stats.t_interval(values)
        interval = (
            [t_interval.low, t_interval.high]
            if name != SHARE
            else [max(0.0, t_interval.low), min(1.0, t_interval.high)]
        )
    except stats.UnusableError:  # every repeat gave the same value
        interval = [mean, mean]
    return Metric(name=name, unit=unit.rstrip(")"), value=mean, interval=interval, repeats=values)


GOALS = ("latency", "ttft", "tpot")
TOKEN_SLACK = 0.02  # a different number of tokens in an answer is different work


def compare(runs: Runs, servers: list[ServerFigures], goal: str, margin: float | None) -> ServerVerdict:
    """The verdict on the goal, and each metric's ratio with its interval."""
    flags = _flags(*servers)
    rows = [row for name in GOALS if (row := _ratio(runs, name, flags, margin))]
    judged = next(row for row in rows if row.metric == goal)
    return ServerVerdict(
        verdict=judged.verdict,
        passed=all_passed([judged.verdict]),
        goal=goal,
        sentence=judged.sentence,
        metrics=rows,
        flags=flags,
    )


def _ratio(runs: Runs, name: str, flags: list[Flag], margin: float | None) -> MetricRatio | None:
    log_ratios, noise = list[float](), list[float]()
    for repeat in zip(*(runs.by_role[role] for role in (BASELINE, AGAIN, CANDIDATE)), strict=True):
        before, again, after = (medians(requests).get(name) for requests in repeat)
        if before and again and after:
            log_ratios.append((math.log(before) + math.log(again)) / 2 - math.log(after))
            noise.append(math.log(before) - math.log(again))
    if not log_ratios and not flags:
        return None
    outcome = judge(log_ratios, noise, margin=margin, flags=flags)
    return MetricRatio(
        metric=name,
        ratio=outcome.ratio,
        interval=outcome.interval,
        noise_floor=outcome.noise_floor,
        verdict=outcome.verdict,
        sentence=outcome.sentence,
    )


def _flags(baseline: ServerFigures, candidate: ServerFigures) -> list[Flag]:
    """Reasons why two servers' latencies cannot be compared: failed requests, or answers of different length."""
    flags = []
    if candidate.failed > baseline.failed:
        message = f"The candidate failed {candidate.failed} requests, the baseline {baseline.failed}."
        flags.append(Flag(code="incorrect_failed", severity="fatal", message=message))
    if abs(candidate.output_tokens / baseline.output_tokens - 1) > TOKEN_SLACK:
        tokens = f"{candidate.output_tokens:.4g} tokens in a mean answer, the baseline's {baseline.output_tokens:.4g}"
        flags.append(Flag(code="incorrect_tokens", severity="fatal", message=f"The candidate's has {tokens}."))
    return flags
