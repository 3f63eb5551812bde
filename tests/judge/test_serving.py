"""The serving clock: whole comparisons of engines that are honest and that cheat, and its parts by themselves."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness_support import judge

from aisp_mcp.bench import Request
from aisp_mcp.judge.audit_log import check_chain
from aisp_mcp.judge.evidence import ServedReplicate, ServedRequest, ServedTrace
from aisp_mcp.judge.parent.timing.serving import Delivery, WrongEmissionError
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.layout import Layout, RingShape
from aisp_mcp.judge.protocol.messages import PlannedRequest, ServingTerms
from aisp_mcp.judge.protocol.module_loader import load_spec
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.protocol.shared_memory import ControlBlock
from aisp_mcp.judge.protocol.token_ring import RingOverflowError, TokenRing
from aisp_mcp.judge.verdict import serving
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator
from aisp_mcp.judge.verifier.serving import ServingTruth, passes
from aisp_mcp.runs.export.html import figure_rows
from aisp_mcp.validity import corpus, issues

pytestmark = [pytest.mark.torch]
TWO = Preset("two", 2, 0.003)
SERVE_SMALL = issues.baseline("serve_small")


# --- whole comparisons


def test_an_engine_is_measured_by_the_parents_stamps(tmp_path: Path) -> None:
    comparison = judge(tmp_path, corpus.named("two_requests_at_a_time").candidate, SERVE_SMALL)
    assert comparison.goal == "latency"
    assert comparison.verification is not None
    assert comparison.verification.checked == comparison.verification.calls > 0
    assert comparison.baseline is not None
    assert comparison.optimized is not None
    served = comparison.optimized.serving
    assert served is not None
    assert served.ttft is not None
    assert served.e2e is not None
    assert 0 < served.ttft.p50_s < served.e2e.p50_s
    assert served.tokens_per_s == pytest.approx(served.goodput_tokens_per_s)  # without a level, every request meets it
    assert comparison.optimized.metric is not None
    assert (comparison.optimized.metric.name, comparison.optimized.metric.unit) == ("p50 TTFT", "s")
    assert re.search(r"; p50 TTFT [\d.]+ ms and [\d.]+ ms$", comparison.sentence)
    assert (comparison.optimized.unit, comparison.optimized.items_per_s) == ("tokens", served.tokens_per_s)
    shown = {name: (left, right) for name, left, right in figure_rows(comparison)}
    assert "time per call" not in shown
    assert all(" tokens/s" in text for name in ("items", "goodput") for text in shown[name])
    assert all(re.fullmatch(r"[\d.]+ [mµ]s, [\d.]+ [mµ]s, –", text) for text in shown["TTFT: p50, p95, p99"])
    assert comparison.clocks is not None
    assert comparison.clocks.used == "parent"
    assert comparison.log_path is not None
    assert check_chain(Path(comparison.log_path)) == comparison.log_sha256
    rows = [json.loads(line) for line in Path(comparison.log_path).read_text().splitlines()]
    traces = [row for row in rows if row["kind"] == "trace"]
    assert len(traces) == comparison.baseline.rounds + comparison.optimized.rounds
    assert all(len(row["stamps_s"]) == 6 and len(row["stamps_s"][0]) == 8 for row in traces)


REFUSED = {
    "guess_for_the_first_token": "incorrect_token",
    "guess_that_is_corrected_later": "incorrect_token",
    "tokens_out_of_order": "incorrect_token",
    "answers_of_an_earlier_trace": "incorrect_token",
    "decoded_without_the_hand_over": "incorrect_token",
    "last_token_dropped": "incorrect_missing",
    "request_dropped": "incorrect_missing",
    "request_served_twice": "incorrect_emission",
    "emitted_before_it_arrived": "incorrect_emission",
    "count_of_tokens_set_back": "incorrect_emission",
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", REFUSED)
def test_an_engine_that_cheats_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """That all attacks are stopped is tested with the corpus; here, with which flag."""
    case = corpus.named(name)
    comparison = judge(tmp_path, case.candidate, case.baseline)
    assert comparison.verdict == "incorrect"
    assert [flag.code for flag in comparison.flags if flag.severity == "fatal"] == [REFUSED[name]]
    assert comparison.ratio is None


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_baseline_is_not_faster_than_itself(tmp_path: Path) -> None:
    source = """
from aisp_mcp.bench.decoder import SlotCache, serve_continuously

def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, 1, 16))
"""
    assert judge(tmp_path, source, SERVE_SMALL, TWO).verdict not in ("faster", "incorrect", "invalid")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_tokens_held_back_to_come_close_together_do_not_win(tmp_path: Path) -> None:
    """The time per further token is nearly nothing, but the first one comes late."""
    case = corpus.named("tokens_held_back")
    comparison = judge(tmp_path, case.candidate, case.baseline, TWO)
    assert comparison.verdict not in ("faster", "same")
    assert "other_latency_worse" in [flag.code for flag in comparison.flags]


# --- parts


@pytest.fixture
def ring() -> Iterator[tuple[TokenRing, TokenRing]]:
    """The parent's and the worker's view of one ring."""
    fd = os.memfd_create("ring", os.MFD_ALLOW_SEALING)
    layout = Layout((), (), (), 1, RingShape(requests=2, prompt=4, tokens=3))
    yield TokenRing(ControlBlock(fd, layout)), TokenRing(ControlBlock(fd, layout))
    os.close(fd)


def requests(*tokens: int) -> list[PlannedRequest]:
    return [PlannedRequest(id=100 + i, at=0.0, prompt=[1, 2 + i], tokens=n) for i, n in enumerate(tokens)]


def test_a_request_is_seen_when_it_is_handed_out_and_no_earlier(ring: tuple[TokenRing, TokenRing]) -> None:
    parent, worker = ring
    parent.reset()
    assert worker.arrivals(0) == []
    parent.hand_out(Request(7, (1, 2, 3), 2))
    assert worker.arrivals(0) == [Request(7, (1, 2, 3), 2)]
    assert not worker.closed
    parent.hand_out(Request(8, (4,), 3))
    parent.close()
    assert worker.arrivals(1) == [Request(8, (4,), 3)]
    assert worker.closed
    worker.emit(7, 41)
    worker.emit(8, 42)
    assert parent.read() + parent.read() == [(7, 41), (8, 42)]
    assert parent.read() == []


@pytest.mark.parametrize("count", [-1, 1 << 40])
def test_a_count_that_cannot_be_is_refused(ring: tuple[TokenRing, TokenRing], count: int) -> None:
    parent, worker = ring
    parent.reset()
    worker._words[2] = count
    with pytest.raises(RingOverflowError):
        parent.read()


def test_tokens_belong_to_requests_that_have_arrived(ring: tuple[TokenRing, TokenRing]) -> None:
    parent, worker = ring
    delivery = Delivery(parent, requests(1, 1), None)
    delivery.look()
    worker.emit(101, 5)  # the second one comes when the first is done
    with pytest.raises(WrongEmissionError, match="not arrived"):
        [delivery.look() for _ in range(2)]


def test_a_surplus_and_a_missing_token_are_told(ring: tuple[TokenRing, TokenRing]) -> None:
    parent, worker = ring
    delivery = Delivery(parent, requests(2, 1), [0.0, 0.0])
    delivery.look()
    assert [arrival.id for arrival in worker.arrivals(0)] == [100, 101]
    worker.emit(100, 5)
    worker.emit(101, 6)
    [delivery.look() for _ in range(2)]
    assert delivery.missing() == "1 of 2 tokens were emitted for request 0"
    worker.emit(100, 6)
    [delivery.look() for _ in range(2)]
    assert delivery.missing() is None
    assert delivery.tokens == [[5, 6], [6]]
    worker.emit(101, 9)
    with pytest.raises(WrongEmissionError, match="more tokens"):
        [delivery.look() for _ in range(2)]


def test_every_token_must_be_the_best_or_as_good(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "baseline_small.py"
    path.write_text(SERVE_SMALL)
    spec: Any = load_spec(path, "small")
    reference = ReferenceEvaluator(spec, spec.params(CallRng("cpu", 3, secret_statistics=False)))
    truth = ServingTruth(spec, "cpu")
    assert truth.open(reference, 4)["layout"]["ring"] == {"requests": 6, "prompt": 8, "tokens": 8}
    trace = truth.draw(5)["requests"]
    assert trace == truth.draw(5)["requests"]
    assert {request["id"] for request in trace}.isdisjoint(request["id"] for request in truth.draw(6)["requests"])
    answers = []
    for request in trace:
        tokens = list(request["prompt"])
        for _ in range(8):
            tokens.append(int(spec.logits(torch.tensor([tokens]), **reference.params)[0, -1].argmax()))
        answers.append(tokens[8:])
    assert truth.check(reference, trace, answers)["failure"] is None
    answers[3][5] = (answers[3][5] + 1) % 64
    failure = truth.check(reference, trace, answers)
    assert failure["code"] == "incorrect_token"
    assert "request 3 of 6: token 5" in str(failure["failure"])
    answers[3][5] = 64
    assert "outside the vocabulary" in str(truth.check(reference, trace, answers)["failure"])
    twin = {**reference.params, "unembedding": reference.params["unembedding"].clone()}
    twin["unembedding"][:, 1::2] = twin["unembedding"][:, ::2]  # every token has one that is as good
    tied = ReferenceEvaluator(spec, twin)
    answers = []
    for request in trace:
        tokens = list(request["prompt"])
        for index in range(8):
            tokens.append(int(spec.logits(torch.tensor([tokens]), **twin)[0, -1].argmax()) ^ (index % 2))
        answers.append(tokens[8:])
    assert truth.check(tied, trace, answers)["failure"] is None


TERMS = ServingTerms(metric="ttft", percentile=50, slo_ttft=3.0, slo_tpot=2.0, time_unit="alone", max_regression=2.0)


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([8] * 20, [16, 4]),  # AT_ONCE
        ([512] * 6, [4, 2]),  # 4 x 512 x 512 scores of a head are 2^20
        ([512, 512, 1024, 512, 8], [2, 1, 2]),
        ([4096, 4096, 8], [1, 1, 1]),  # longer than a pass should be: one by one
        ([3], [1]),
    ],
)
def test_long_rows_share_no_pass_of_the_reference(lengths: list[int], rows: list[int]) -> None:
    groups = list(passes(lengths))
    assert [part.stop - part.start for part in groups] == rows
    assert [n for part in groups for n in range(part.start, part.stop)] == list(range(len(lengths)))


def test_goodput_counts_tokens_of_requests_within_the_level() -> None:
    quick = ServedRequest(1.0, (1.2, 1.3, 1.4))
    late = ServedRequest(1.0, (1.4, 1.5, 2.0, 2.1))
    slow = ServedRequest(1.0, (1.1, 1.4, 1.7))
    replicate = ServedReplicate(0, alone_s={"ttft": 0.1, "tpot": 0.1})
    trace = ServedTrace(Role.BASELINE, (quick, late, slow), 0.001)
    assert [serving.meets_slo(request, TERMS, replicate.alone_s) for request in trace.requests] == [True, False, False]
    assert serving.good_tokens(trace, TERMS, replicate.alone_s) == 3
    assert serving.seconds_per_good_token(replicate, trace, TERMS) == pytest.approx(1.1 / 3)
    assert serving.latencies(trace.requests, "itl") == pytest.approx([0.1, 0.1, 0.1, 0.5, 0.1, 0.3, 0.3])
    assert ServedRequest(0.0, (0.5,)).tpot is None
    at_once = ServedTrace(Role.CANDIDATE, (ServedRequest(0.0, (0.5, 0.5, 0.5)),), 0.001)
    assert serving._latency("itl", 50)(replicate, at_once) == serving.RESOLUTION_S  # no look tells less apart
