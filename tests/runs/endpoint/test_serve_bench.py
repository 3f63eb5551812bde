"""A server over HTTP: the client proves itself, a slower server is found, unequal work is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.endpoint import measuring
from aisp_mcp.runs.endpoint.clients import CLIENTS, Job, prompts
from aisp_mcp.runs.imports.readers.requests import Request
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
    with measuring.stub(0.1, 0.02, 8) as url:
        answer = measure(ctx, url=url, repeats=2, slo_ttft_ms=1000.0, slo_tpot_ms=0.001)
        kind = measure(ctx, url=url, repeats=1, slo_ttft_ms=5000.0)
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
    assert (pair["verdict"], pair["passed"]) == ("slower", False)
    ratio = next(row for row in pair["metrics"] if row["metric"] == "latency")
    assert ratio["interval"]["low"] < 1 / 1.2 * 1.03
    assert ratio["interval"]["high"] < 0.95


def test_shorter_answers_and_failures_are_no_speed_up() -> None:
    def repeats(tokens: int, latency: float, count: int = 4) -> list[list[Request]]:
        return [[Request(0.01, latency + 0.001 * i, tokens, float(i)) for i in range(count)] for _ in range(3)]

    runs = measuring.Runs({"baseline": repeats(64, 1.0), "again": repeats(64, 1.01), "candidate": repeats(32, 0.5)})
    plan = measuring.Plan(CLIENTS[0], "", 1, 4, 64, 5, 3, (None, None), Path(), 1.0)
    both = [measuring.figures(plan, measuring.Server(url, "m"), runs.by_role[url]) for url in ("baseline", "candidate")]
    assert measuring.compare(runs, both, "latency", None).verdict is Verdict.INCORRECT
    runs.by_role["candidate"] = repeats(64, 0.5, count=3)
    both[1] = measuring.figures(plan, measuring.Server("c", "m"), runs.by_role["candidate"])
    judged = measuring.compare(runs, both, "latency", None)
    assert (judged.verdict, judged.flags[0].code) == (Verdict.INCORRECT, "incorrect_failed")


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
    job = Job("http://h:1", "org/model", 3, 17, prompts(5, 4, 1), tmp_path, 60.0)
    words = " ".join(client.argv(job))
    for part in ("http://h:1", "org/model", "prompts.jsonl", "3", "5", "17"):
        assert part in words or (part == "17" and client.name == "vllm")


def test_prompts_are_never_sent_twice() -> None:
    assert len({*prompts(50, 20, 1), *prompts(50, 20, 2)}) == 100
