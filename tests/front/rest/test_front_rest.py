"""REST next to MCP: lists with filters, pages and ETags, tools with the same envelopes, events, and who may ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from envelope_cases import CASES, comparable
from front_support import Cli, Connect
from http_support import Served

from aisp_mcp.errors import UsageError
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Run


def stored(home: Path, count: int) -> None:
    """Runs of one or two verdicts each, a second apart, of a job of whoever has the server's token."""
    with Store(home) as store:
        owner = f"j_{count:022d}"
        job = Job(
            id=owner,
            tool="x",
            params={},
            state=JobState.QUEUED,
            timeout_s=1,
            created_at=1.0,
            principal="http",
            run_dir="x",
        )
        store.insert_job(job, python="", cwd="", env={})
        store.transition(owner, JobState.CANCELLED)
        for n in range(count):
            verdicts = [{"target": "ch07:row_sum", "verdict": "faster", "ratio": 2.0 + n / 1000, "low": 1.9}]
            if n % 2:
                verdicts.append({"target": "ch15:attention", "verdict": "inconclusive", "ratio": 1.0, "low": 0.8})
            comparisons = [
                {
                    **{key: verdict[key] for key in ("target", "verdict", "ratio")},
                    "candidate": "tiled" if verdict["verdict"] == "faster" else "",
                    "sentence": "x",
                    "isolation": "L1",
                    "replicates": 5,
                    "interval": {"low": verdict["low"], "high": 3.0},
                }
                for verdict in verdicts
            ]
            body = {"id": f"r_{n:022d}", "created_at": 1.7e9 + n, "preset": "default", "profile": "strict"}
            run = {**body, "environment": {"gpus": [{"name": "NVIDIA H200"}]}, "comparisons": comparisons}
            store.save_run(Run.model_validate(run), owner)


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    stored(home, 30)
    server = Served()
    yield server
    server.stop()


class Api:
    """A client of one server, with the token or without."""

    def __init__(self, served: Served, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {served.token if token is None else token}"}
        self.web = httpx2.Client(base_url=f"http://127.0.0.1:{served.port}/api", headers=headers, timeout=50)

    def get(self, path: str, **headers: str) -> Any:
        return self.web.get(path, headers=headers)


@pytest.fixture
def api(served: Served) -> Iterator[Api]:
    client = Api(served)
    with client.web:
        yield client


def test_lists_are_filtered_paged_and_projected(api: Api) -> None:
    first = api.get("/benchmarks?q=chapter:ch07%20device:h200&limit=20&fields=target,ratio").json()
    assert len(first["rows"]) == 20
    assert set(first["rows"][0]) == {"target", "ratio"}
    assert first["rows"][0]["ratio"] == pytest.approx(2.029)
    rest = api.get(f"/benchmarks?q=chapter:ch07&limit=20&cursor={first['next_cursor']}").json()
    assert len(rest["rows"]) == 10
    assert rest["next_cursor"] is None
    assert api.get("/benchmarks?q=verdict:inconclusive").json()["rows"][0]["target"] == "ch15:attention"
    assert api.get("/history").json()["tool"] == "history"
    assert api.get("/summary").json()["verdicts"] == {"faster": 30, "inconclusive": 15}
    boards = api.get("/analysis/leaderboards").json()["boards"]
    assert [row["target"] for row in boards["speed"]] == ["ch07:row_sum_tiled"]  # attention is inconclusive
    for path in ("/benchmarks?q=colour:red", "/benchmarks?limit=0", "/benchmarks?fields=nothing", "/jobs?state=odd"):
        assert api.get(path).status_code == 422, path
    assert api.get("/runs/r_0000000000000000000099").json()["error"]["code"] == "UNKNOWN_RUN"
    assert api.get("/runs/r_0000000000000000000099").status_code == 404
    assert api.get("/nothing").status_code == 404


def test_an_unchanged_answer_is_not_sent_again(api: Api) -> None:
    first = api.get("/summary")
    again = api.get("/summary", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    stored(Path(os.environ["AISP_HOME"]), 31)
    assert api.get("/summary", **{"If-None-Match": first.headers["etag"]}).status_code == 200


def test_strangers_and_wrong_names_are_refused(served: Served, api: Api) -> None:
    with (stranger := Api(served, "x" * 43)).web:
        for path in ("/benchmarks", "/openapi.json", "/events", "/nothing"):
            assert stranger.get(path).status_code == 401, path
    assert api.get("/summary", Host="evil.example").status_code == 421
    assert api.get("/summary", Origin="http://evil.example").status_code == 403


def test_the_openapi_document_names_every_tool_and_list(api: Api) -> None:
    document = api.get("/openapi.json").json()
    tools = {tool["name"] for tool in api.get("/tools").json()["tools"]}
    assert document["openapi"] == "3.1.0"
    assert {f"/api/tools/{name}" for name in tools} <= set(document["paths"])
    assert "/api/benchmarks" in document["paths"]
    echo = document["paths"]["/api/tools/aisp_demo_echo"]["post"]
    assert echo["requestBody"]["content"]["application/json"]["schema"]["required"] == ["count"]


def test_bodies_that_are_no_arguments_are_refused(api: Api) -> None:
    for body in (b"[1]", b"{", b'"x"', b"[" * 5000):
        answer = api.web.post("/tools/aisp_demo_echo", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "BAD_BODY")
    assert api.web.post("/tools/aisp_nothing", json={}).status_code == 404


@pytest.mark.parametrize(
    ("executor", "code"),
    [
        ("inprocess", "BAD_EXECUTOR"),
        ("nowhere", "BAD_EXECUTOR"),
        ("a%0Ab", "BAD_EXECUTOR"),
        ("ssh://gpubox", "NOT_FOR_YOU"),
    ],
)
def test_a_call_names_where_its_job_runs(api: Api, executor: str, code: str) -> None:
    answer = api.web.post(f"/tools/aisp_demo_count?executor={executor}", json={"steps": 1})
    assert answer.json()["error"]["code"] == code


def test_events_tell_of_jobs_and_of_what_was_missed(api: Api) -> None:
    events = []
    with api.web.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": listening"
        api.web.post("/tools/aisp_demo_count", json={"steps": 1, "wait_s": 0})
        ids = []
        for line in lines:
            if line.startswith("id: "):
                ids.append(int(line[4:]))
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if events[-1]["state"] == "succeeded":
                    break
    assert {event["tool"] for event in events} == {"aisp_demo_count"}
    assert ids == sorted(ids)
    with api.web.stream("GET", "/events", headers={"Last-Event-ID": str(ids[-1] - 1)}) as stream:
        missed = next(json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
    assert missed == events[-1]
    job = api.get(f"/jobs/{missed['id']}").json()
    assert job["state"] == "succeeded"
    assert api.get(f"/jobs/{missed['id']}/log?bytes=100").json()["state"] == "succeeded"


@pytest.mark.anyio
async def test_the_same_call_gives_the_same_envelope_over_mcp_cli_and_rest(
    connect: Connect, cli: Cli, api: Api
) -> None:
    cases = [CASES[index] for index in (1, 6, 8, 11, 13)]
    async with connect() as client:
        for tool, arguments, argv in cases:
            over_mcp = (await client.call_tool(tool, arguments)).structured_content
            over_rest = api.web.post(f"/tools/{tool}", json=arguments)
            assert comparable(over_rest.json()) == comparable(over_mcp), tool
            assert (over_rest.status_code < 300) == (over_mcp["status"] != "error")
            assert comparable(json.loads(cli(*argv, "--json").stdout)) == comparable(over_mcp)


def test_filters_are_read_word_by_word() -> None:
    filters = parse("chapter:ch07 since:2d ch15:attention sum", now=1e9)
    assert (filters.chapter, filters.since, filters.text) == ("ch07", 1e9 - 172_800, ("ch15:attention", "sum"))
    assert parse("since:2026-01-01").since == 1767225600.0
    with pytest.raises(UsageError, match="'fastr' is not one of faster, "):
        parse("verdict:fastr")


LISTING = """
import sys, time
from pathlib import Path
from aisp_mcp.store.records.verdict_row import VerdictFilter
from aisp_mcp.store.database import Store
store = Store(Path(sys.argv[1]))
def took():
    begin = time.process_time()
    rows, more = store.list_verdicts(VerdictFilter(chapter="ch07"), 50)
    assert len(rows) == 50
    return time.process_time() - begin
print(min(took() for _ in range(9)))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_page_costs_as_much_among_ten_thousand_runs_as_among_a_hundred(tmp_path: Path) -> None:
    seconds = []
    for count in (100, 10_000):
        stored(tmp_path / str(count), count)
        done = subprocess.run(
            [sys.executable, "-c", LISTING, str(tmp_path / str(count))], capture_output=True, text=True, check=True
        )
        seconds.append(float(done.stdout))
    assert seconds[1] < 2 * seconds[0] + 0.002, seconds


PATHS = (
    *("/benchmarks?limit=50", "/summary", "/analysis/leaderboards", "/analysis/tradeoffs", "/analysis/pareto"),
    *("/analysis/cost?usd_per_hour=1", "/analysis/recommendations?gpu=H100-SXM"),
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pages_and_analyses_of_one_principal_stay_flat(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the real server: the cost of a list and an analysis is bounded by the rows they look at, at most 5,000."""
    best: dict[tuple[str, int], float] = {}
    for count in (2_500, 10_000):
        monkeypatch.setenv("AISP_HOME", str(home.with_name(f"home{count}")))
        stored(home.with_name(f"home{count}"), count)
        server = Served()
        client = Api(server)
        with client.web:
            for path in PATHS:
                seen = []
                for _ in range(9):
                    answer = client.get(path)
                    assert answer.status_code in (200, 503), answer.text
                    seen.append(answer.elapsed.total_seconds())
                best[path, count] = min(seen)
        server.stop()
    seconds = {path: (best[path, 2_500], best[path, 10_000]) for path in PATHS}
    print({path: [round(1e3 * value, 1) for value in pair] for path, pair in seconds.items()})
    assert seconds["/benchmarks?limit=50"][1] < 2 * seconds["/benchmarks?limit=50"][0] + 0.01, seconds
    # Counting reads every row once: no worse than in proportion.
    assert all(many < 4 * few + 0.02 for few, many in seconds.values()), seconds
