"""Costs of a call and of a page, which must not grow with the jobs and runs that are stored."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_support import START, comparison, keep_run
from front_support import Raw

from aisp_mcp.front.dashboard import site
from aisp_mcp.front.dashboard.request import PageRequest, ServedLinks
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.job import Job, JobState

FEW, MANY, ROUNDS, FACTOR = 10, 10_000, 60, 2.0


def filled(home: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with that many ended jobs; the id of the last."""
    monkeypatch.setenv("AISP_HOME", str(home))
    store = Context(settings=Settings.from_env()).store
    answer = {"tool": "aisp_demo_echo", "status": "ok", "result": {}, "meta": {}}
    with store.db.transaction():
        for number in range(count):
            job = Job(
                id=f"j_{number:022d}",
                tool="aisp_demo_echo",
                params={},
                state=JobState.QUEUED,
                timeout_s=10,
                created_at=time.time(),
                run_dir=str(home / "runs" / f"j_{number:022d}"),
            )
            store.insert_job(job, python="python", cwd="/", env={})
        store.db.change("UPDATE jobs SET state = 'succeeded', ended_at = created_at, envelope = ?", json.dumps(answer))
    return job.id


@pytest.fixture
def servers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Raw, str]]]:
    """A server over few jobs and one over many."""
    made = []
    for count in (FEW, MANY):
        job_id = filled(home.with_name(f"home{count}"), count, monkeypatch)
        made.append((Raw(), job_id))
    yield made
    for raw, _ in made:
        raw.process.kill()
        raw.process.communicate()


def requests(job_id: str) -> dict[str, dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {
        "aisp_job_status": {"job_id": job_id},
        "aisp_job_list": {"limit": 20},
        "aisp_job_wait": {"job_ids": [job_id]},
    }
    made = {name: {"method": "tools/call", "params": {"name": name, "arguments": a}} for name, a in calls.items()}
    return {**made, "tools/list": {"method": "tools/list"}, "resources/list": {"method": "resources/list"}}


@pytest.mark.slow
def test_many_stored_jobs_cost_no_more_than_few(servers: list[tuple[Raw, str]]) -> None:
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for raw, _ in servers:
        raw.handshake()
    # In turns, so that whatever disturbs this machine disturbs both.
    for number in range(1, ROUNDS + 1):
        for which, (raw, job_id) in enumerate(servers):
            for name, request in requests(job_id).items():
                began = time.perf_counter()
                raw.send(id=number, **request)
                answer = raw.read()
                seconds.setdefault(name, ([], []))[which].append(time.perf_counter() - began)
                assert answer["result"].get("isError", False) is False, answer
    ratios = {name: statistics.median(many) / statistics.median(few) for name, (few, many) in seconds.items()}
    print(ratios)
    assert {name: ratio for name, ratio in ratios.items() if ratio > FACTOR} == {}, ratios


PAGES = {"overview": {}, "verdicts": {}, "compare": {}, "history": {"target": "ch01:same"}, "analysis": {}}
FEW_RUNS, LOOKS, PAGE_FACTOR, FIRST_S = 1_000, 7, 3.0, 0.3


def with_runs(home: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A store with that many runs: ten of one target, the others of 300."""
    monkeypatch.setenv("AISP_HOME", str(home))
    ctx = Context(settings=Settings.from_env())
    with ctx.store.db.transaction():
        for number in range(count):
            target = "ch01:same" if number < 10 else f"ch01:t_{number % 300}"
            row = comparison(target, "", 1.5 + number % 7 / 100)
            keep_run(ctx.store, number, [row], START + 60 * number)
    load_catalog(ctx.settings)
    return ctx


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pages_of_many_runs_cost_no_more_than_of_few(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor time, so that it holds on a loaded machine; the first look includes what is loaded for it."""
    stores = [with_runs(home.with_name(f"runs{count}"), count, monkeypatch) for count in (MANY, FEW_RUNS)]
    first: dict[str, float] = {}
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for _ in range(LOOKS):
        for which, ctx in enumerate(stores):
            for name, query in PAGES.items():
                began = time.process_time()
                page = site.render(site.PAGES[name], PageRequest(ctx, query), ServedLinks())
                spent = time.process_time() - began
                first.setdefault(name, spent)
                seconds.setdefault(name, ([], []))[which].append(spent)
                assert len(page) <= 180_000
    ratios = {name: statistics.median(many) / statistics.median(few) for name, (many, few) in seconds.items()}
    print(ratios, first)
    assert {name: ratio for name, ratio in ratios.items() if ratio > PAGE_FACTOR} == {}, ratios
    assert {name: spent for name, spent in first.items() if spent > FIRST_S} == {}, first
