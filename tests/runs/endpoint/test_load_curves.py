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
