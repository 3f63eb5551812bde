"""The job tools, called as every front calls them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_helpers import finished
from waiting import until

from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog, to_data
from aisp_mcp.store.records.job import JobState


@pytest.fixture
def ctx(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    context = Context()
    load_catalog(replace(context.settings, tool_modules=""))
    monkeypatch.setattr(registry, "_TOOLS", dict(registry._TOOLS))
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))
    sys.modules.pop("job_tools", None)
    load_catalog(context.settings)
    yield context
    context.store.close()
    sys.modules.pop("job_tools", None)


def call(ctx: Context, name: str, /, **args: Any) -> dict[str, Any]:
    """The result; an error is a failure of the test."""
    answer = to_data(execute(name, args, ctx))
    assert answer["status"] == "ok", answer
    result: dict[str, Any] = answer["result"]
    return result


def refusal(ctx: Context, name: str, /, **args: Any) -> str:
    answer = to_data(execute(name, args, ctx))
    assert answer["status"] == "error"
    code: str = answer["error"]["code"]
    return code


def submit(ctx: Context, timeout_s: float = 40, **params: Any) -> str:
    return ctx.jobs.submit("aisp_test_work", params, timeout_s=timeout_s).id


def test_status_of_a_running_and_an_ended_job(ctx: Context, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job_id = submit(ctx, gate=str(gate), label="unique-label")
    until(lambda: ctx.jobs.get(job_id).progress is not None)
    running = call(ctx, "aisp_job_status", job_id=job_id)
    assert running["job"]["state"] == "running"
    assert running["job"]["progress"] == {"done": 1, "total": 2, "message": "half way"}
    assert running["answer"] is None
    gate.touch()
    finished(ctx.jobs, job_id)
    ended = call(ctx, "aisp_job_status", job_id=job_id)
    assert ended["answer"]["result"]["text"] == "unique-label"
    assert json.dumps(ended).count("unique-label") == 1  # nothing is repeated
    assert "tool" not in ended["answer"]


def test_the_log_in_a_status_is_bounded(ctx: Context) -> None:
    job_id = ctx.jobs.submit("aisp_test_flood", {"megabytes": 3}, timeout_s=40).id
    finished(ctx.jobs, job_id)
    log = call(ctx, "aisp_job_status", job_id=job_id)["log"]
    assert len(log) == 2000
    assert log.endswith("the end\n")


def test_wait_for_one_gives_its_answer_and_for_many_their_states(ctx: Context) -> None:
    first, second = submit(ctx, label="a"), submit(ctx, label="b")
    both = call(ctx, "aisp_job_wait", job_ids=[first, second, first], timeout_s=45)
    assert [job["state"] for job in both["jobs"]] == ["succeeded", "succeeded"]
    assert both["answer"] is None
    single = call(ctx, "aisp_job_wait", job_ids=[first])
    assert single["answer"]["result"]["text"] == "a"


def test_wait_for_any_and_a_wait_that_is_too_short(ctx: Context, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow, quick = submit(ctx, gate=str(gate)), submit(ctx)
    seen = call(ctx, "aisp_job_wait", job_ids=[slow, quick], until="any", timeout_s=45)
    assert [job["state"] for job in seen["jobs"]] == ["running", "succeeded"]
    short = call(ctx, "aisp_job_wait", job_ids=[slow], timeout_s=0)
    assert (short["jobs"][0]["state"], short["answer"]) == ("running", None)
    assert call(ctx, "aisp_job_cancel", job_id=slow)["state"] == "cancelled"


def test_a_failure_is_told_once(ctx: Context) -> None:
    job_id = ctx.jobs.submit("aisp_test_end", {"how": "refuse"}, timeout_s=40).id
    finished(ctx.jobs, job_id)
    for tool, args in (("aisp_job_wait", {"job_ids": [job_id]}), ("aisp_job_status", {"job_id": job_id})):
        assert json.dumps(call(ctx, tool, **args)).count("No NVIDIA GPU was found.") == 1
    assert call(ctx, "aisp_job_list")["jobs"][0]["reason"] == "NO_GPU: No NVIDIA GPU was found."


def test_list_pages_and_filters(ctx: Context) -> None:
    ids = [submit(ctx) for _ in range(3)]
    for job_id in ids:
        finished(ctx.jobs, job_id)
    page = call(ctx, "aisp_job_list", limit=2)
    rest = call(ctx, "aisp_job_list", limit=2, cursor=page["next_cursor"])
    assert [job["job_id"] for job in page["jobs"] + rest["jobs"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert call(ctx, "aisp_job_list", state="failed")["jobs"] == []
    assert len(call(ctx, "aisp_job_list", state="succeeded", tool="aisp_test_work")["jobs"]) == 3


def test_clean_asks_first(ctx: Context) -> None:
    job_id = submit(ctx)
    finished(ctx.jobs, job_id)
    would = call(ctx, "aisp_job_clean", keep_days=0)
    assert (would["removed"], would["jobs"]) == (False, 1)
    assert ctx.jobs.get(job_id).state is JobState.SUCCEEDED
    done = call(ctx, "aisp_job_clean", keep_days=0, confirm=True)
    assert (done["removed"], done["jobs"]) == (True, 1)
    assert refusal(ctx, "aisp_job_status", job_id=job_id) == "UNKNOWN_JOB"
    assert not ctx.store.run_dir(job_id).exists()


def test_refusals(ctx: Context) -> None:
    alien = ctx.jobs.submit("aisp_test_work", {}, timeout_s=40, principal="somebody else").id
    finished(ctx.jobs, alien)
    seen_by_the_user = [job["job_id"] for job in call(ctx, "aisp_job_list")["jobs"]]
    assert seen_by_the_user == [alien]
    ctx = ctx.under("bob")
    for job_id in ("nope", "../../etc/passwd", alien):
        assert refusal(ctx, "aisp_job_status", job_id=job_id) == "UNKNOWN_JOB"
        assert refusal(ctx, "aisp_job_cancel", job_id=job_id) == "UNKNOWN_JOB"
        assert refusal(ctx, "aisp_job_wait", job_ids=[job_id]) == "UNKNOWN_JOB"
    assert refusal(ctx, "aisp_job_list", cursor="'; DROP TABLE jobs") == "BAD_CURSOR"
    assert refusal(ctx, "aisp_job_wait", job_ids=[]) == "INVALID_ARGUMENT"
    assert refusal(ctx, "aisp_job_wait", job_ids=["x"], timeout_s=46) == "INVALID_ARGUMENT"
    assert call(ctx, "aisp_job_list")["jobs"] == []
