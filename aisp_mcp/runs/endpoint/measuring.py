"""Measure one or two servers: test the client on a stub, then run the repeats, interleaved if there are two.

Each metric under each load is judged like any pair: log-ratios over interleaved repeats, against the baseline's own
noise. `judging.py` makes one verdict of these rows.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.judge.verdict.verdict import judge
from aisp_mcp.runs.endpoint import clients, judging, recorded, servers
from aisp_mcp.runs.endpoint.clients import Client, Job
from aisp_mcp.runs.endpoint.loads import Load
from aisp_mcp.runs.endpoint.recorded import Recorded
from aisp_mcp.runs.endpoint.records import Metric, MetricRatio, SelfTest, ServerFigures, ServerVerdict
from aisp_mcp.runs.endpoint.servers import Server
from aisp_mcp.runs.imports.readers.requests import Request

BASELINE, AGAIN, CANDIDATE = "baseline", "again", "candidate"
STUB_TTFT_S, STUB_ITL_S, STUB_TOKENS = 0.1, 0.02, 16
KNOWN_S = {"ttft": STUB_TTFT_S, "tpot": STUB_ITL_S}
SLACK = {"ttft": 0.3, "tpot": 0.2}  # share of the known latency that a client may add
# Requests of the test of a client, at least; and for each that is sent at once, since the first ones also open a
# connection. Of 100 ms, 16 at once, GuideLLM 0.8.1 read 472 with 2, 118 with 4 and 104 with 8 on two cores.
STUB_REQUESTS, STUB_ROUNDS = 12, 4
SHARE = "good share"


@dataclass(frozen=True)
class Plan:
    """The same loads for every server. slo_s: limits of a good request's (TTFT, TPOT), None for each that is not
    set.
    """

    client: Client
    program: str
    loads: tuple[Load, ...]
    requests: int
    output_tokens: int
    prompt_words: int
    repeats: int
    slo_s: tuple[float | None, float | None]
    folder: Path
    timeout_s: float
    prompts: tuple[str, ...] = ()
    trace: tuple[Recorded, ...] = ()

    def send(self, server: Server, load: Load, label: str, seed: int) -> list[Request]:
        """One run of the client against a server, with new prompts."""
        sent, folder = self._prompts(load), self.folder / label
        rows = self.trace if load.recorded else ()
        job = Job(server.url, server.model, load, self.output_tokens, sent, folder, self.timeout_s, seed, rows)
        return clients.run(self.client, self.program, job)

    def count(self, load: Load) -> int:
        """Requests of a run: at least two for each of those at once, or most of a run would be its end."""
        return len(self.trace) if load.recorded else max(self.requests, 2 * (load.streams or 0))

    def _prompts(self, load: Load) -> list[str]:
        count = self.count(load)
        if self.trace:  # one that is too short begins again with other texts
            passes = (recorded.prompts(self.trace, secrets.randbits(48)) for _ in itertools.count())
            return list(itertools.islice(itertools.chain.from_iterable(passes), count))
        if self.prompts:
            return list(itertools.islice(itertools.cycle(self.prompts), count))
        return clients.prompts(count, self.prompt_words, secrets.randbits(48))


@dataclass
class Runs:
    """Answered requests of each repeat under one load, by role."""

    load: Load
    by_role: dict[str, list[list[Request]]] = field(default_factory=dict)

    def add(self, role: str, requests: list[Request]) -> None:
        self.by_role.setdefault(role, []).append(requests)

    @property
    def repeats(self) -> int:
        return len(self.by_role[BASELINE])


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
        streams = max([load.streams for load in plan.loads if load.streams is not None], default=1)
        sent, folder = clients.prompts(max(STUB_REQUESTS, STUB_ROUNDS * streams), 10, 0), plan.folder / "self-test"
        job = Job(url, "aisp-stub", Load(streams=streams), STUB_TOKENS, sent, folder, plan.timeout_s)
        return clients.run(plan.client, plan.program, job)


@contextmanager
def stub(ttft_s: float, itl_s: float, tokens: int, slots: int = 4096, neighbour: float = 1.0) -> Iterator[str]:
    """Start a stub server in a separate process; yield its address. slots, neighbour: as in Latencies."""
    given = {"ttft-s": ttft_s, "itl-s": itl_s, "tokens": tokens, "slots": slots, "neighbour": neighbour}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
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


def measure(
    plan: Plan,
    pair: list[Server],
    report: Callable[[float, float, str], None] = lambda *_: None,
    until_s: float = math.inf,
) -> list[Runs]:
    """All repeats under all loads. With two servers, each repeat is baseline, candidate and baseline again, in random
    order, with the same arrivals. until_s: of time.monotonic(); a later repeat that would end after it is left out.
    Raises Unavailable SERVER_DIED.
    """
    roles = (
        {BASELINE: pair[0]}
        if len(pair) == 1
        else dict(zip((BASELINE, CANDIDATE, AGAIN), (pair[0], pair[1], pair[0]), strict=True))
    )
    measured, done, total = [Runs(load) for load in plan.loads], 0, plan.repeats * len(roles) * len(plan.loads)
    draw, began = random.SystemRandom(), time.monotonic()
    for repeat in range(plan.repeats):
        if repeat and began + (time.monotonic() - began) * (repeat + 1) / repeat > until_s:
            break
        seed = draw.randrange(2**31)
        for runs in sorted(draw.sample(measured, len(measured)), key=lambda runs: runs.load.share is not None):
            # A share of the highest rate is known after the first repeat of the other loads.
            runs.load = runs.load.at(max(map(requests_per_s, measured)))
            for role in draw.sample(list(roles), len(roles)):
                report(done, total, f"repeat {repeat + 1} of {plan.repeats}, {runs.load.label}: {role}")
                label = f"{repeat}-{runs.load.label.replace(' ', '-').replace('/', '-per-')}-{role}"
                runs.add(role, _sent(plan, roles[role], runs.load, label, seed))
                done += 1
    report(total, total, "done")
    return measured


def _sent(plan: Plan, server: Server, load: Load, label: str, seed: int) -> list[Request]:
    """One run; if nothing is answered, the server is asked whether it still lives. Raises Unavailable SERVER_DIED."""
    try:
        answered, failure = plan.send(server, load, label, seed), None
    except ProcessError as error:
        answered, failure = [], error
    if answered:
        return answered
    try:
        servers.require_answer(server.url, server.model, 2)
    except Unavailable as error:
        message = f"{server.url} stopped answering at {load.label}: {error.message}"
        raise Unavailable(
            "SERVER_DIED", message, "See the server's log, restart it, or ask for a lower load."
        ) from error
    if failure is not None:
        raise failure
    return answered


def requests_per_s(runs: Runs) -> float:
    """The baseline's median rate of answers; 0 if the client gives no times, and before the first run."""
    repeats = runs.by_role.get(BASELINE, [])
    rates = [len(requests) / seconds for requests in repeats if (seconds := duration(requests))]
    return stats.quantile(rates, 0.5) if rates else 0.0


def medians(requests: list[Request]) -> dict[str, float]:
    """Medians over requests, in seconds: ttft, tpot, latency."""
    columns = {
        "ttft": [request.ttft_s for request in requests],
        "tpot": [value for request in requests if (value := request.tpot_s) is not None],
        "latency": [request.latency_s for request in requests],
    }
    return {name: stats.quantile(values, 0.5) for name, values in columns.items() if values}


def figures(plan: Plan, server: Server, load: Load, repeats: list[list[Request]]) -> ServerFigures:
    """Metrics of one server over its repeats under one load. Raises Unavailable NO_ANSWERS."""
    answered = [requests for requests in repeats if requests]
    everything = [request for requests in answered for request in requests]
    if not everything:
        raise Unavailable("NO_ANSWERS", f"{server.url} answered no request.", "See client.log in the job's folder.")
    texts = [request.characters for request in everything if request.characters is not None]
    rows = [_row(plan, load, requests) for requests in answered]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return ServerFigures(
        url=server.url,
        model=server.model,
        load=load.label,
        metrics=[_metric(name, [row[name] for row in rows]) for name in names],
        output_tokens=sum(request.output_tokens for request in everything) / len(everything),
        output_characters=sum(texts) / len(texts) if texts else None,
        requests=len(everything),
        failed=plan.count(load) * len(repeats) - len(everything),
    )


def _row(plan: Plan, load: Load, requests: list[Request]) -> dict[str, float]:
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
            row[f"{SHARE} (of requests sent)"] = good / plan.count(load)
    return row


def duration(requests: list[Request]) -> float | None:
    """Seconds from the first request sent to the last token received; None if the client gives no times."""
    begins = [request.begin_s for request in requests if request.begin_s is not None]
    if not begins or len(begins) < len(requests):
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


TOKEN_SLACK = 0.02  # a different number of tokens in an answer is different work
# Share of the baseline's characters an answer, below which a server does not send the tokens that it counts. Chosen:
# means over sampled answers of one model differ by far less.
LEAST_TEXT = 0.8
LEAST_REPEATED = 0.1  # share of answers that repeat another one, from which on it is named
# Chosen: one comparison in a hundred calls servers that fail equally often different.
FAILURE_ALPHA = 0.01


def compare(plan: Plan, measured: list[Runs], shown: list[ServerFigures], goal: str, limit: float) -> ServerVerdict:
    """The verdict on two servers. shown: for each load the baseline's figures, then the candidate's."""
    pairs = list(zip(shown[::2], shown[1::2], strict=True))
    rows = [row for runs in measured for row in ratios(runs, plan.slo_s)]
    rows += [row for both in pairs if (row := _failures(*both, FAILURE_ALPHA / len(pairs)))]
    decision, flags = judging.decide(rows, goal, limit), [flag for both in pairs for flag in _different_work(*both)]
    flags += [flag for runs in measured if (flag := _same_answers(runs, FAILURE_ALPHA / len(measured)))]
    sentence = judging.sentence(decision, rows, goal, limit)
    word = judging.Word.INCORRECT if flags else decision.word
    return ServerVerdict(
        verdict=word,
        passed=None if word is judging.Word.INCONCLUSIVE else word in judging.PASSED,
        goal=goal,
        limit=limit,
        sentence=f"{word}: {flags[0].message}" if flags else sentence,
        metrics=rows,
        flags=flags,
    )


def ratios(runs: Runs, slo_s: tuple[float | None, float | None]) -> list[MetricRatio]:
    """Every metric under one load, judged alone."""
    repeats = [
        [_logs(requests, slo_s) for requests in repeat]
        for repeat in zip(*(runs.by_role[role] for role in (BASELINE, AGAIN, CANDIDATE)), strict=True)
    ]
    return [row for name in METRICS if (row := _ratio(name, runs.load, repeats))]


# Metrics of a pair, and the sign that makes more of it better.
METRICS = {"throughput": 1, "ttft": -1, "tpot": -1, "latency": -1, "goodput": 1}


def _logs(requests: list[Request], slo_s: tuple[float | None, float | None]) -> dict[str, float]:
    """Logarithms of one run's metrics, signed so that more is better."""
    row = medians(requests)
    if seconds := duration(requests):
        row["throughput"] = sum(request.output_tokens for request in requests) / seconds
        if any(slo_s):
            row["goodput"] = max(sum(is_good(request, slo_s) for request in requests), 0.5) / seconds
    return {name: METRICS[name] * math.log(value) for name, value in row.items() if value > 0}


def _ratio(name: str, load: Load, repeats: list[list[dict[str, float]]]) -> MetricRatio | None:
    log_ratios, noise = list[float](), list[float]()
    for repeat in repeats:
        if all(name in run for run in repeat):
            before, again, after = (run[name] for run in repeat)
            log_ratios.append(after - (before + again) / 2)
            noise.append(again - before)
    if not log_ratios:
        return None
    outcome = judge(log_ratios, noise)
    return MetricRatio(
        metric=name,
        load=load.label,
        ratio=outcome.ratio,
        interval=outcome.interval,
        noise_floor=outcome.noise_floor,
        verdict=outcome.verdict,
        sentence=outcome.sentence,
    )


def _failures(baseline: ServerFigures, candidate: ServerFigures, alpha: float) -> MetricRatio | None:
    """A row for failed requests, if one server failed more of them than chance explains."""
    sides = [(side.failed, side.failed + side.requests) for side in (candidate, baseline)]
    failed, total = (sum(column) for column in zip(*sides, strict=True))
    for (own, sent), verdict in zip(sides, (Verdict.SLOWER, Verdict.FASTER), strict=True):
        if own and stats.hypergeometric_tail(own, failed, sent, total) < alpha:
            shares = [f"{side.failed} of {side.failed + side.requests}" for side in (candidate, baseline)]
            sentence = f"failed {shares[0]} requests instead of {shares[1]}"
            return MetricRatio(
                metric=judging.FAILED, load=candidate.load, ratio=None, interval=None, noise_floor=None,
                verdict=verdict, sentence=sentence,
            )  # fmt: skip
    return None


def _same_answers(runs: Runs, alpha: float) -> Flag | None:
    """A reason if the candidate repeats its answers more than chance explains, as one does that sheds load."""
    repeated, sent, example = dict[str, int](), dict[str, int](), ""
    for role, side in ((BASELINE, "baseline"), (AGAIN, "baseline"), (CANDIDATE, "candidate")):
        for repeat in runs.by_role.get(role, []):
            texts = Counter(request.text for request in repeat if request.text)
            repeated[side] = repeated.get(side, 0) + texts.total() - len(texts)
            sent[side] = sent.get(side, 0) + texts.total()
            example = texts.most_common(1)[0][0].strip()[:60] if texts else ""  # the candidate's last one
    own, usual = repeated.get("candidate", 0), repeated.get("baseline", 0)
    if not all(sent.values()) or own < LEAST_REPEATED * sent["candidate"]:
        return None
    if stats.hypergeometric_tail(own, own + usual, sent["candidate"], sum(sent.values())) >= alpha:
        return None
    message = (
        f"At {runs.load.label} the candidate repeats an answer of the same run {own} times in {sent['candidate']}, "
        f"such as {example!r}; the baseline {usual} times in {sent['baseline']}."
    )
    return Flag(code="incorrect_answers", severity="fatal", message=message)


def _different_work(baseline: ServerFigures, candidate: ServerFigures) -> list[Flag]:
    """Reasons why two servers cannot be compared: answers of other lengths, by their own count or by their text."""
    sides, flags = (candidate, baseline), list[Flag]()
    own, usual = (side.output_tokens for side in sides)
    if abs(own / usual - 1) > TOKEN_SLACK:
        message = f"At {candidate.load} the candidate's mean answer has {own:.4g} tokens, the baseline's {usual:.4g}."
        flags.append(Flag(code="incorrect_tokens", severity="fatal", message=message))
    own_text, usual_text = (side.output_characters for side in sides)
    if own_text is not None and usual_text and own_text < LEAST_TEXT * usual_text:
        message = (
            f"At {candidate.load} the candidate counts {own:.4g} tokens an answer and sends {own_text:.4g} characters, "
            f"the baseline {usual:.4g} tokens in {usual_text:.4g}."
        )
        flags.append(Flag(code="incorrect_text", severity="fatal", message=message))
    return flags
