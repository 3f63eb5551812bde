"""A job from submit to its end, with real supervisors and workers."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from job_helpers import finished
from waiting import until

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import NotFound
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import JobState


def test_a_job_succeeds_and_leaves_its_answer_twice(jobs: Jobs, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_TEST_VARIABLE", "seen")
    job = finished(jobs, jobs.submit("aisp_test_work", {"label": "hello"}, timeout_s=30).id)
    assert (job.state, job.exit_code, job.reason) == (JobState.SUCCEEDED, 0, None)
    assert job.envelope is not None
    answer = Envelope.model_validate(job.envelope)
    assert answer.status == "ok"
    assert answer.result["text"] == "hello"
    assert answer.result["cwd"] == os.getcwd()
    assert answer.result["variable"] == "seen"
    assert answer.result["stdin"] == ""
    assert not Path(answer.result["tmp"]).exists()
    assert json.loads((home / "runs" / job.id / "envelope.json").read_text()) == job.envelope


def test_ids_are_long_and_folders_private(jobs: Jobs, home: Path) -> None:
    job = jobs.submit("aisp_test_work", {}, timeout_s=30)
    assert job.id.startswith("j_")
    assert len(job.id) == 24  # 128 bits in base 64
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    finished(jobs, job.id)


def test_an_error_of_the_tool_is_an_answer(jobs: Jobs) -> None:
    job = finished(jobs, jobs.submit("aisp_test_end", {"how": "refuse"}, timeout_s=30).id)
    assert job.state is JobState.FAILED
    assert job.envelope is not None
    assert job.envelope["error"]["code"] == "NO_GPU"
    assert job.reason == "NO_GPU: No NVIDIA GPU was found."


@pytest.mark.parametrize(
    ("how", "code", "exit_code"),
    [("segfault", "CRASHED", -11), ("exit0", "NO_RESULT", 0), ("exit7", "CRASHED", 7), ("killed", "CRASHED", -9)],
)
def test_a_worker_without_an_answer(jobs: Jobs, how: str, code: str, exit_code: int) -> None:
    job = finished(jobs, jobs.submit("aisp_test_end", {"how": how}, timeout_s=30).id)
    assert (job.state, job.exit_code) == (JobState.FAILED, exit_code)
    envelope = Envelope.model_validate(job.envelope)
    assert envelope.error is not None
    assert envelope.error.code == code
    assert envelope.error.hint
    assert envelope.error.next_steps[0].args == {"job_id": job.id}


def test_a_flood_is_drained_and_bounded(jobs: Jobs, home: Path) -> None:
    job = finished(jobs, jobs.submit("aisp_test_flood", {"megabytes": 100}, timeout_s=50).id)
    assert job.state is JobState.SUCCEEDED
    logs = list((home / "runs" / job.id).glob("log*.txt"))
    assert len(logs) == 2
    assert sum(path.stat().st_size for path in logs) <= 2_000_000
    assert jobs.log_tail(job.id, 100).endswith("the end\n")
    assert len(jobs.log_tail(job.id, 1_500_000)) > 1_000_000 - 262_144  # reaches into the older generation


def test_progress_is_seen_while_it_runs(jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30)
    until(lambda: jobs.get(job.id).progress is not None)
    seen = jobs.get(job.id)
    assert seen.state is JobState.RUNNING
    assert seen.envelope is None
    assert seen.progress is not None
    assert (seen.progress.done, seen.progress.total, seen.progress.message) == (1, 2, "half way")
    gate.touch()
    assert finished(jobs, job.id).state is JobState.SUCCEEDED


def test_jobs_that_share_a_resource_queue_in_order_and_say_their_place(jobs: Jobs, tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "journal"
    first = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30, resources=["gpu:a", "gpu:b"])
    waiting = [
        jobs.submit("aisp_test_work", {"journal": str(journal), "label": str(i)}, timeout_s=30, resources=[r])
        for i, r in enumerate(["gpu:a", "gpu:a", "gpu:b"])
    ]
    other = jobs.submit("aisp_test_work", {}, timeout_s=30, resources=["gpu:c"])
    assert finished(jobs, other.id).state is JobState.SUCCEEDED
    assert [jobs.get(job.id).position for job in waiting] == [1, 2, 1]
    assert [jobs.get(job.id).state for job in waiting] == [JobState.QUEUED] * 3
    gate.touch()
    for job in [first, *waiting]:
        assert finished(jobs, job.id).state is JobState.SUCCEEDED
    starts = [line.split()[1] for line in journal.read_text().splitlines() if line.startswith("begin")]
    assert starts.index("0") < starts.index("1")


def test_jobs_without_resources_share_their_places(store: Store, tmp_path: Path) -> None:
    from dataclasses import replace

    jobs = Jobs(store, replace(Settings.from_env(), parallel_jobs=2))
    gate = tmp_path / "gate"
    ids = [jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30).id for _ in range(4)]
    until(lambda: [jobs.get(i).state for i in ids[:2]] == [JobState.RUNNING] * 2)
    assert [jobs.get(i).state for i in ids[2:]] == [JobState.QUEUED] * 2
    assert [jobs.get(i).position for i in ids[2:]] == [0, 1]
    gate.touch()
    assert [finished(jobs, i).state for i in ids] == [JobState.SUCCEEDED] * 4


def test_cancel_a_queued_job(jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30, resources=["cpu"])
    second = jobs.submit("aisp_test_work", {}, timeout_s=30, resources=["cpu"])
    cancelled = jobs.cancel(second.id)
    assert cancelled.state is JobState.CANCELLED
    assert Envelope.model_validate(cancelled.envelope).error is not None
    gate.touch()
    assert finished(jobs, first.id).state is JobState.SUCCEEDED
    assert jobs.cancel(first.id).state is JobState.SUCCEEDED  # too late, as its state shows


def test_a_missing_interpreter_is_an_answer(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    job = jobs.get(jobs.submit("aisp_test_work", {}, timeout_s=30).id)
    assert job.state is JobState.FAILED
    assert Envelope.model_validate(job.envelope).error is not None


def test_an_interpreter_that_never_takes_the_job_is_given_up(
    jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    job = jobs.submit("aisp_test_work", {}, timeout_s=30)
    for _ in range(5):
        assert store.job(job.id).state is JobState.QUEUED
        store.db.change("UPDATE jobs SET spawned_at = 0 WHERE id = ?", job.id)  # as if its time were over
        jobs.reconcile()
    ended = store.job(job.id)
    assert ended.state is JobState.FAILED
    assert ended.reason is not None
    assert ended.reason.startswith("NOT_STARTED")


def test_another_principals_job_is_unknown(jobs: Jobs) -> None:
    job = jobs.submit("aisp_test_work", {}, timeout_s=30, principal="alice")
    finished(jobs, job.id)
    with pytest.raises(NotFound) as caught:
        jobs.get(job.id, principal="bob")
    assert caught.value.code == "UNKNOWN_JOB"


def test_a_large_parameter_and_a_large_answer(jobs: Jobs) -> None:
    label = "ä" * 500_000
    job = finished(jobs, jobs.submit("aisp_test_work", {"label": label}, timeout_s=30).id)
    assert job.envelope is not None
    assert job.envelope["result"]["text"] == label
