"""A server over HTTP: the client proves itself, a slower server is found, unequal work is refused."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.endpoint import clients, judging, loads, measuring, reporting
from aisp_mcp.runs.endpoint.clients import CLIENTS, Job, prompts
from aisp_mcp.runs.endpoint.loads import Load
from aisp_mcp.runs.endpoint.records import MetricRatio, SelfTest
from aisp_mcp.runs.endpoint.servers import Server
from aisp_mcp.runs.imports.readers.requests import Request
from aisp_mcp.runs.imports.readers.source import Source
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute

SMALL = {"requests": 6, "concurrency": 2, "output_tokens": 8, "prompt_words": 5}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A load client on the PATH, and no other one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "guidellm"
    script = Path(__file__).parent / "load_client.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), "/usr/bin", "/bin"]))
    return program


def measure(ctx: Context, **args: Any) -> dict[str, Any]:
    """Run the tool's own function here, without a job's process."""
    from aisp_mcp.errors import AispError
    from aisp_mcp.runs.endpoint.tools import ServeBenchParams, aisp_serve_bench

    try:
        result = aisp_serve_bench(ServeBenchParams(client="guidellm", **{**SMALL, **args}), ctx)
    except AispError as error:
        return {"error": error.code, "message": error.message}
    return result.model_dump(mode="json")


def metric(side: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in side["metrics"] if row["name"] == name)


def test_known_latencies_are_read_and_goodput_counts_what_is_within(ctx: Context, client: Path) -> None:
    for _ in range(3):  # a busy machine may hold up answers, and those of the test of the client
        with measuring.stub(0.1, 0.02, 8) as url:
            answer = measure(ctx, url=url, repeats=2, slo_ttft_ms=1000.0, slo_tpot_ms=0.001)
            kind = measure(ctx, url=url, repeats=1, slo_ttft_ms=5000.0)
        if "error" not in answer and metric(answer["servers"][0], "ttft")["value"] < 0.2:
            break
    assert "error" not in answer, answer
    side = answer["servers"][0]
    assert (side["model"], side["requests"], side["failed"], side["output_tokens"]) == ("aisp-stub", 12, 0, 8)
    assert 0.1 <= metric(side, "ttft")["value"] < 0.2
    # A first token that is seen late, on a loaded machine, shortens what is left for the others.
    assert 0.012 <= metric(side, "tpot")["value"] < 0.04
    assert metric(side, "good share")["value"] == 0  # no token arrives within 1 µs
    assert metric(kind["servers"][0], "good share")["value"] == 1
    assert len(metric(side, "latency")["interval"]) == 2
    assert answer["self_test"]["ttft_ms"][0] == 100


def test_a_client_that_misreads_the_stub_is_not_used(
    ctx: Context, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_BY", "0.5")
    with measuring.stub(0.01, 0.001, 4) as url:
        answer = measure(ctx, url=url, repeats=1)
    assert answer["error"] == "CLIENT_UNTRUSTED"
    assert "for 100" in answer["message"]


@pytest.mark.slow
def test_a_planted_difference_of_a_fifth_is_found(ctx: Context, client: Path) -> None:
    with measuring.stub(0.1, 0.02, 8) as baseline, measuring.stub(0.12, 0.024, 8) as slower:
        answer = measure(ctx, url=baseline, candidate=slower, repeats=5)
    pair = answer["pair"]
    assert (pair["verdict"], pair["passed"]) == ("worse", False)
    ratio = next(row for row in pair["metrics"] if row["metric"] == "latency")
    assert ratio["interval"]["low"] < 1 / 1.2 * 1.03
    assert ratio["interval"]["high"] < 0.95


@pytest.mark.slow
def test_faster_tokens_behind_a_queue_are_a_trade_off(
    ctx: Context, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SelfTest(client="guidellm", ttft_ms=[], tpot_ms=[], sentence="")  # other tests run it
    monkeypatch.setattr(measuring, "self_test", lambda _: known)
    with measuring.stub(0.1, 0.02, 8) as baseline, measuring.stub(0.1, 0.005, 8, slots=1) as queueing:
        answer = measure(ctx, url=baseline, candidate=queueing, repeats=3, loads=["4", "50%"], requests=8, goal="tpot")
    pair = answer["pair"]
    assert (pair["verdict"], pair["passed"]) == ("trade-off", False), pair["sentence"]
    assert "tpot" in pair["sentence"].split(",")[0]
    assert answer["load"]["loads"][0] == "concurrency 4"
    assert answer["load"]["loads"][1].endswith("requests/s")
    assert len(answer["servers"]) == 4
    assert "Fewer than three loads" in answer["notes"][0]


def served(tokens: int, latency_s: float, count: int = 40) -> list[list[Request]]:
    return [[Request(0.01, latency_s + 0.001 * i + 0.01 * r, tokens, float(i)) for i in range(count)] for r in range(3)]


def compared(baseline: list[list[Request]], candidate: list[list[Request]]) -> Any:
    again = [[replace(each, latency_s=each.latency_s * 1.001) for each in requests] for requests in baseline]
    runs = measuring.Runs(Load(streams=4), {"baseline": baseline, "again": again, "candidate": candidate})
    plan = measuring.Plan(CLIENTS[0], "", (runs.load,), 40, 64, 5, 3, (None, None), Path(), 1.0)
    both = [Server(url, "m") for url in ("b", "c")]
    return measuring.compare(plan, [runs], reporting.all_figures(plan, both, [runs]), "latency", 0.05)


def test_shorter_answers_and_failures_are_no_gain() -> None:
    judged = compared(served(64, 1.0), served(32, 0.5))
    assert (judged.verdict, judged.flags[0].code) == ("incorrect", "incorrect_tokens")
    judged = compared(served(64, 1.0), served(64, 0.5, count=30))
    assert (judged.verdict, judged.passed) == ("worse", False)
    assert "failed 30 of 120 requests instead of 0 of 240" in judged.sentence


def with_text(repeats: list[list[Request]], characters: int, same: int = 0) -> list[list[Request]]:
    """Texts of that many characters and some spaces, the first ones of a repeat equal."""
    return [
        [
            replace(each, text=" \n".join(f"{repeat * (at >= same)}.{max(at, same)}".ljust(characters, "x")))
            for at, each in enumerate(requests)
        ]
        for repeat, requests in enumerate(repeats)
    ]


def test_tokens_that_are_counted_and_not_sent_are_no_gain() -> None:
    baseline, quick = with_text(served(64, 1.0), 300), served(64, 0.3)
    judged = compared(baseline, with_text(quick, 6))
    assert (judged.verdict, judged.flags[0].code) == ("incorrect", "incorrect_text")
    assert "counts 64 tokens an answer and sends 6 characters, the baseline 64 tokens in 300" in judged.sentence
    assert compared(baseline, with_text(quick, 200)).verdict == "incorrect"
    assert compared(baseline, with_text(quick, 250)).verdict == "better"
    assert compared(baseline, quick).verdict == "better"  # a client that keeps no texts


def test_one_answer_to_many_requests_is_no_gain() -> None:
    baseline, quick = with_text(served(64, 1.0), 300), served(64, 0.3)
    judged = compared(baseline, with_text(quick, 300, same=8))
    assert (judged.verdict, judged.flags[0].code) == ("incorrect", "incorrect_answers")
    assert "repeats an answer of the same run 22 times in 120, such as '0 " in judged.sentence
    assert judged.sentence.endswith("; the baseline 0 times in 240.")
    assert compared(baseline, with_text(quick, 300, same=2)).verdict == "better"  # a few refusals
    assert compared(with_text(served(64, 1.0), 300, same=40), with_text(quick, 300, same=40)).verdict == "better"


def test_texts_are_read_where_a_client_keeps_them() -> None:
    texts = {
        "guidellm": {"benchmarks": [{"requests": {"successful": [{
            "time_to_first_token_ms": 5.0, "request_latency": 1.0, "output_tokens": 3, "output": " a b c",
            "reasoning_output": "hm"}]}}]},
        "vllm": {"ttfts": [0.1], "itls": [[0.1, 0.1]], "output_lens": [3], "generated_texts": [" a b c"]},
    }  # fmt: skip
    read = {
        client.name: client.read(Source(Path("x.json"), json.dumps(texts[client.name])))[0].characters
        for client in CLIENTS
        if client.name in texts
    }
    assert read == {"guidellm": 5, "vllm": 3}  # without white space


def test_a_single_failed_request_decides_nothing() -> None:
    candidate = served(64, 0.5)
    candidate[0].pop()
    assert compared(served(64, 1.0), candidate).verdict == "better"


def rows(ratios: dict[str, float], half: float = 0.01, load: str = "concurrency 128") -> list[MetricRatio]:
    """Rows as the comparison of single metrics makes them, with intervals of that half-width."""
    made = []
    for metric, ratio in ratios.items():
        word = Verdict.FASTER if ratio > 1 + half else Verdict.SLOWER if ratio < 1 - half else Verdict.SAME
        if half > 0.05 and word is Verdict.SAME:
            word = Verdict.INCONCLUSIVE
        interval = Interval(low=ratio * (1 - half), high=ratio * (1 + half), level=0.95)
        made.append(MetricRatio(metric=metric, load=load, ratio=ratio, interval=interval, noise_floor=half / 2,
                                verdict=word, sentence=""))  # fmt: skip
    return made


@pytest.mark.parametrize("goal", ["latency", "ttft", "tpot", "throughput"])
def test_quick_tokens_that_cost_throughput_are_a_trade_off_for_every_goal(goal: str) -> None:
    moved = rows({"throughput": 0.67, "ttft": 0.17, "tpot": 4.5, "latency": 0.67})
    decision = judging.decide(moved, goal)
    assert decision.word is judging.Word.TRADE_OFF
    text = judging.sentence(decision, moved, goal)
    assert all(part in text for part in ("tpot 4.50×", "throughput 0.67×", "ttft 0.17×", "at concurrency 128"))


SAME = {"throughput": 1.0, "ttft": 1.0, "tpot": 1.0, "latency": 1.0}


@pytest.mark.parametrize(
    ("moved", "goal", "word"),
    [
        (rows(SAME), "latency", "same"),
        (rows({**SAME, "tpot": 1.2}), "tpot", "better"),
        (rows({**SAME, "tpot": 1.2}), "ttft", "same"),
        (rows({**SAME, "tpot": 1.2, "throughput": 0.97}), "tpot", "better"),  # within what the goal may cost
        (rows({**SAME, "tpot": 1.2, "throughput": 0.97}), "throughput", "trade-off"),
        (rows({**SAME, "tpot": 0.97}), "tpot", "worse"),
        (rows({**SAME, "tpot": 0.97}), "latency", "same"),
        (rows({**SAME, "throughput": 0.8}), "latency", "worse"),
        (rows({**SAME, "tpot": 1.2}) + rows({**SAME, "tpot": 0.9}, load="4/s"), "tpot", "trade-off"),
        (rows({"latency": 1.0}, half=0.2), "latency", "inconclusive"),
        (rows({"tpot": 1.2}) + rows({"throughput": 0.9}, half=0.2), "tpot", "inconclusive"),
        (rows({"tpot": 1.2}) + rows({"throughput": 0.98}, half=0.2), "tpot", "better"),
    ],
)
def test_a_verdict_follows_from_intervals_goal_and_limit(moved: list[MetricRatio], goal: str, word: str) -> None:
    assert judging.decide(moved, goal).word == word


def test_a_loss_that_is_not_ruled_out_is_named_and_the_limit_can_be_set() -> None:
    moved = rows({"tpot": 1.2}) + rows({"throughput": 0.98}, half=0.2, load="4/s")
    text = judging.sentence(judging.decide(moved, "tpot"), moved, "tpot")
    assert text.endswith("a loss of more than 5 % is not ruled out in throughput 0.980× at 4/s")
    dear = rows({"tpot": 1.2, "throughput": 0.8})
    assert judging.decide(dear, "tpot", limit=0.25).word is judging.Word.BETTER


def test_what_cannot_be_measured_is_refused_before_a_job(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    missing = execute("aisp_serve_bench", {"url": "http://127.0.0.1:9", "client": "aiperf"}, ctx).model_dump(
        mode="json"
    )
    assert missing["error"]["code"] == "NOT_INSTALLED"
    assert "pip install aiperf" in missing["error"]["hint"]


def test_a_server_that_does_not_answer_and_a_bad_address_are_named(ctx: Context, client: Path) -> None:
    assert measure(ctx, url="http://127.0.0.1:9")["error"] == "UNREACHABLE"
    assert measure(ctx, url="ftp://host")["error"] == "BAD_URL"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_each_client_is_called_with_the_job(client: Any, tmp_path: Path) -> None:
    for load, part in ((Load(streams=3), "3"), (Load(rate=2.25), "2.25")):
        job = Job("http://h:1", "org/model", load, 17, prompts(5, 4, 1), tmp_path, 60.0, seed=41)
        words = " ".join(client.argv(job))
        for each in ("http://h:1", "org/model", "prompts.jsonl", part, "5", "17", "41"):
            assert each in words or (each == "17" and client.name == "vllm")


def test_guidellm_gets_as_many_processes_as_its_load_needs() -> None:
    guidellm = next(client for client in CLIENTS if client.name == "guidellm")
    for load, processes in ((Load(rate=200.0), "1"), (Load(streams=8), "1"), (Load(streams=256), "8")):
        assert guidellm.environment(load)["GUIDELLM__MAX_WORKER_PROCESSES"] == processes


@pytest.mark.parametrize("text", ["0", "2.5", "-3", "x", "0/s", "8/m", "1e9"])
def test_what_is_no_load_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not a load"):
        loads.parse([text])
    with pytest.raises(UsageError, match="needs another load"):
        loads.parse(["70%"])


def test_a_server_against_itself_is_refused_and_one_that_dies_is_named(ctx: Context, client: Path) -> None:
    with measuring.stub(0.01, 0.001, 8) as url:
        assert measure(ctx, url=url, candidate=url.replace("127.0.0.1", "localhost"))["error"] == "SAME_SERVER"
        assert measure(ctx, url=url, goal="goodput")["error"] == "NO_SLO"
        plan = measuring.Plan(*clients.find("guidellm"), (Load(streams=2), Load(share=0.7)), 6, 8, 5, 2, (None, None),
                              ctx.settings.home, 60.0)  # fmt: skip
        server = Server(url, "aisp-stub")
        measured = measuring.measure(plan, [server])
        assert [runs.repeats for runs in measured] == [2, 2]
        assert (measured[1].load.rate or 0) > 0
        assert [runs.repeats for runs in measuring.measure(plan, [server], until_s=0.0)] == [1, 1]
    with pytest.raises(Unavailable, match=r"stopped answering at concurrency 2") as raised:
        measuring.measure(plan, [server])
    assert raised.value.code == "SERVER_DIED"


def test_prompts_are_never_sent_twice() -> None:
    assert len({*prompts(50, 20, 1), *prompts(50, 20, 2)}) == 100
