"""Knees of load curves, requests of recorded traces, and the picture of both servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.runs.endpoint import clients, knee, loads, recorded, reporting
from aisp_mcp.runs.endpoint.clients import CLIENTS, Job
from aisp_mcp.runs.endpoint.loads import Load
from aisp_mcp.runs.endpoint.measuring import AGAIN, BASELINE, CANDIDATE, Plan, Runs
from aisp_mcp.runs.endpoint.servers import Server
from aisp_mcp.runs.imports.readers.requests import Request
from aisp_mcp.server.charts import answers


def closed(streams: int, slots: int, alone_s: float, count: int = 400) -> list[Request]:
    """Requests of a closed system: `streams` at once, of which `slots` are answered and the others wait."""
    free, ready, requests = [0.0] * slots, [0.0] * streams, list[Request]()
    for _ in range(count):
        ready.sort()
        free.sort()
        begin, start = ready[0], max(ready[0], free[0])
        ready[0] = free[0] = start + alone_s
        requests.append(Request(start - begin + 0.01, start + alone_s - begin, 8, begin))
    return requests


def curve(streams: tuple[int, ...], slots: int, roles: tuple[str, ...] = (BASELINE,)) -> list[Runs]:
    def repeats(at: int) -> list[list[Request]]:
        return [closed(at, slots, 0.1 + 0.001 * ((at + repeat) % 3)) for repeat in range(3)]

    return [Runs(Load(streams=at), {role: repeats(at) for role in roles}) for at in streams]


ONE = [Server("http://a", "m")]


@pytest.mark.parametrize("slots", [3, 8])
def test_the_knee_is_where_the_server_is_full(slots: int) -> None:
    (found,) = knee.knees(ONE, curve((1, 4, 32), slots))
    assert found.concurrency == pytest.approx(slots, rel=0.1)
    assert found.interval[0] <= found.concurrency <= found.interval[1]
    assert found.requests_per_s == pytest.approx(slots / 0.1, rel=0.1)
    assert found.sentence.startswith(f"knee at concurrency {found.concurrency:.3g} (")


def test_a_knee_beyond_the_loads_is_not_guessed() -> None:
    (above,) = knee.knees(ONE, curve((1, 4), 64))
    (below,) = knee.knees(ONE, curve((4, 16), 1))
    assert above.sentence.startswith("no knee up to concurrency 4: throughput still grows")
    assert below.sentence.startswith("the knee is at or below concurrency 4")
    assert knee.knees(ONE, curve((4,), 1)) == []


def test_an_interval_over_all_loads_shows_no_knee() -> None:
    noisy = [
        Runs(
            Load(streams=at),
            {BASELINE: [closed(at, 2, seconds) for seconds in (0.1, 0.4, 0.02)][:: 1 if at > 1 else -1]},
        )
        for at in (1, 4)
    ]
    (found,) = knee.knees(ONE, noisy)
    assert found.sentence.startswith("the knee is not shown: its interval, ")


def test_each_of_two_servers_has_its_own() -> None:
    both = curve((1, 4, 32), 8, (BASELINE, AGAIN))
    for runs, other in zip(both, curve((1, 4, 32), 2, (CANDIDATE,)), strict=True):
        runs.by_role |= other.by_role
    found = knee.knees([*ONE, Server("http://b", "m")], both)
    assert [round(each.concurrency) for each in found] == [8, 2]


# --- recorded requests

MOONCAKE = [
    {"timestamp": 27500, "input_length": 1300, "output_length": 52, "hash_ids": [46, 47, 49]},
    {"timestamp": 27482, "input_length": 1100, "output_length": 500, "hash_ids": [46, 47, 48]},
    {"timestamp": 30535, "input_length": 90, "output_length": 26, "hash_ids": [50]},
]


def read(rows: list[dict[str, Any]], most: int = 10) -> list[recorded.Recorded]:
    return recorded.read([json.dumps(row) for row in rows], "t.jsonl", most)


def test_a_trace_gives_arrivals_lengths_and_shared_beginnings() -> None:
    rows = read(MOONCAKE)
    assert [(round(row.at_s, 3), row.output_tokens) for row in rows] == [(0, 500), (0.018, 52), (3.053, 26)]
    assert recorded.shared(rows) == pytest.approx(2 / 7)
    first, second, third = (text.split() for text in recorded.prompts(rows, 1))
    assert [len(first), len(second), len(third)] == [1100, 1300, 90]
    assert first[:868] == second[:868]  # two blocks of 434, the least that fits all lengths
    assert first[868:] != second[868:1100]
    assert next(recorded.prompts(rows, 2)).split()[:90] != first[:90]


def test_times_in_nanoseconds_are_read() -> None:
    rows = read([{"timestamp": "1753780607550317897", "input_length": 9, "output_length": 4, "hash_ids": [2843241808]},
                 {"timestamp": "1753780609550317897", "input_length": 9, "output_length": 4}])  # fmt: skip
    assert [round(row.at_s, 3) for row in rows] == [0, 2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"timestamp": 1, "input_length": 5}, "Line 2 of t.jsonl is no recorded request: it has no output_length."),
        ({"timestamp": 1, "input_length": 0, "output_length": 3}, "Line 2 of t.jsonl has 0 tokens of input"),
        ({"timestamp": "later", "input_length": 5, "output_length": 3}, "could not convert string to float"),
        ([], "Line 2 of t.jsonl is no recorded request"),
    ],
)
def test_what_is_no_recorded_request_is_named(row: Any, message: str) -> None:
    with pytest.raises(AispError) as raised:
        read([MOONCAKE[0], row])
    assert raised.value.code == "BAD_TRACE"
    assert message in raised.value.message


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,0.5,ChatGPT,472,18,490,Conversation log
45,2,0.0,ChatGPT,1087,0,1087,API log
118,3,2.5,GPT-4,417,276,693,Conversation log
"""
BAILIAN = """\
{"chat_id": 159, "timestamp": 61.114, "input_length": 48, "output_length": 9, "turn": 1, "hash_ids": [7, 8, 9]}
{"chat_id": 160, "timestamp": 62.5, "input_length": 64, "output_length": 8, "turn": 2, "hash_ids": [7, 8, 9, 4]}
"""
AGENT = {
    "id": "t", "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "s", "in": 150, "out": 22, "hash_ids": [1, 2]},
        {"t": 30.0, "type": "subagent", "agent_id": "a", "requests": [
            {"t": 2.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 3]},
            {"t": 9.0, "type": "n", "in": 130, "out": 0, "hash_ids": [1, 3]}]},
        {"t": 31.0, "type": "n", "in": 200, "out": 7, "hash_ids": [1, 2, 5]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "requests", "shared"),
    [
        ("code.csv", AZURE, [(0, 4808, 10), (0.052, 3180, 8)], 0),
        ("week.csv", AZURE_2024, [(0, 2162, 5), (0.007, 2399, 6)], 0),
        ("BurstGPT_1.csv", BURSTGPT, [(0, 472, 18), (113, 417, 276)], 0),
        ("coder.jsonl", BAILIAN, [(0, 48, 9), (1.386, 64, 8)], 3 / 7),
        ("trace_0001.json", json.dumps(AGENT), [(0, 150, 22), (31, 200, 7), (32, 130, 5)], 3 / 7),
        ("trace_0001.json", json.dumps(AGENT, indent=1), [(0, 150, 22), (31, 200, 7), (32, 130, 5)], 3 / 7),
    ],
)
def test_published_traces_are_read(
    tmp_path: Path, name: str, text: str, requests: list[tuple[float, int, int]], shared: float
) -> None:
    (tmp_path / name).write_text(text)
    prompts, rows = recorded.read_file(str(tmp_path / name), 10)
    assert prompts == []
    assert [(round(row.at_s, 3), row.input_tokens, row.output_tokens) for row in rows] == requests
    assert recorded.shared(rows) == pytest.approx(shared)
    assert [len(text.split()) for text in recorded.prompts(rows, 1)] == [row.input_tokens for row in rows]


SHAREGPT = [
    {
        "id": "x_0",
        "conversations": [{"from": "human", "value": "Why?\nNow?"}, {"from": "gpt", "value": "So."}],
    },
    {"id": "x_1", "conversations": [{"from": "human", "value": "never answered"}]},
]


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("one\n\n42\n[INST] three\n", ["one", "42", "[INST] three"]),
        ('{"prompt": "a"}\n{"text": "b"}\n', ["a", "b"]),
        ('{"prompt": "a", "output_tokens": 9}', ["a"]),
        (json.dumps(SHAREGPT, indent=2), ["Why?\nNow?"]),
        (json.dumps(SHAREGPT[0]) + "\n", ["Why?\nNow?"]),
    ],
)
def test_prompts_are_lines_and_texts_of_json(tmp_path: Path, text: str, prompts: list[str]) -> None:
    (tmp_path / "p").write_text(text)
    assert recorded.read_file(str(tmp_path / "p"), 10) == (prompts, [])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:4b\n", "its columns are version https"),
        ("p.csv", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01,1,5,6\n", "NumImages"),
        ("p.csv", AZURE + "2023-11-16,many,8\n", "Line 4 of p.csv is no recorded request: invalid literal"),
        ("p.jsonl", '{"session_id": "s", "turns": [{"text": "a"}]}', "Row 1 of p.jsonl is no prompt"),
        ("p.json", '{"data": [{"payloads": []}]}', "Row 1 of p.json is no prompt: it has data."),
        ("p.json", "[1, 2]", "Row 1 of p.json is no prompt: it is no object."),
        ("p.json", '{"requests": [{"t": 0, "in": 5, "out": 6}]}', "Request 1 of p.json is no recorded request"),
        ("p.txt", "\n \n", "p.txt contains no prompt."),
    ],
)  # fmt: skip
def test_other_files_are_refused_with_those_that_are_read(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(AispError) as raised:
        recorded.read_file(str(tmp_path / name), 10)
    assert message in raised.value.message
    assert "BurstGPT" in (raised.value.hint or "")


def plan(trace: list[recorded.Recorded]) -> Plan:
    return Plan(CLIENTS[0], "", (Load(recorded=True),), 4, 64, 5, 1, (None, None), Path(), 1.0, trace=tuple(trace))


def test_closed_loads_repeat_a_short_trace_with_other_texts() -> None:
    chosen = plan(read(MOONCAKE))
    assert (chosen.count(Load(recorded=True)), chosen.count(Load(streams=4))) == (3, 8)
    texts = chosen._prompts(Load(streams=4))
    assert len(texts) == len(set(texts)) == 8


def test_aiperf_gets_the_schedule(tmp_path: Path) -> None:
    rows = tuple(read(MOONCAKE))
    job = Job("http://a", "m", Load(recorded=True), 64, list(recorded.prompts(rows, 1)), tmp_path, 1.0, 0, rows)
    clients._write_inputs(CLIENTS[0], job)
    written = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert [(round(row["timestamp"]), row["output_length"]) for row in written] == [(0, 500), (18, 52), (3053, 26)]
    words = CLIENTS[0].argv(job)
    assert "--fixed-schedule" in words
    assert "--request-count" not in words
    assert words[words.index("--custom-dataset-type") + 1] == "mooncake_trace"


def test_recorded_arrivals_need_a_trace_and_a_client_that_keeps_them() -> None:
    under = loads.parse(["4", "trace"])
    assert [load.label for load in under] == ["concurrency 4", "recorded arrivals"]
    for trace, code in (([], "BAD_LOAD"), (read(MOONCAKE), "NOT_INSTALLED")):
        with pytest.raises(AispError) as raised:
            reporting._require_arrivals(under, trace, "guidellm")
        assert raised.value.code == code
    assert [load.label for load in loads.default(4, True, True)][2] == "recorded arrivals"


# --- the picture


def test_both_curves_are_in_one_picture_with_the_trade_off_in_its_title() -> None:
    def side(url: str, load: str, rate: float, tpot: float) -> dict[str, Any]:
        metrics = [{"name": "output tokens", "value": rate, "interval": [rate * 0.9, rate * 1.1]},
                   {"name": "tpot", "value": tpot, "interval": [tpot * 0.9, tpot * 1.1]},
                   {"name": "latency", "value": 16 * tpot, "interval": []}]  # fmt: skip
        return {"url": url, "model": "m", "load": load, "metrics": metrics}

    sides = [side(url, load, 100 * n / cost, 0.01 * cost) for n, load in ((1, "concurrency 1"), (3, "concurrency 4"))
             for url, cost in (("http://a", 1.0), ("http://b", 2.0))]  # fmt: skip
    pair = {"goal": "tpot", "sentence": "trade-off: tpot 4.50×, throughput 0.67× at concurrency 4"}
    (drawing,) = answers.draw("loads", {"servers": sides, "pair": pair})
    assert drawing.title == "Load curve: trade-off: tpot 4.50×, throughput 0.67× at concurrency 4"
    assert [row[0] for row in drawing.rows] == ["baseline, concurrency 1", "candidate, concurrency 1",
                                                "baseline, concurrency 4", "candidate, concurrency 4"]  # fmt: skip
    assert drawing.columns[2] == "median latency"
    assert answers.draw("loads", {"servers": []}) == []
