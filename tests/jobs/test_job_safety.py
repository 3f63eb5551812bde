"""Safe starts of jobs: nothing of its folder's modules, and no variable on the disk that may be a secret."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from job_helpers import finished
from waiting import until

from aisp_mcp.errors import Refused
from aisp_mcp.jobs.environment import passed_on, remembered
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import JobState

SECRETS = {
    "DATABASE_URL": "postgres://user:planted-1@host/db",
    "HTTPS_PROXY": "http://user:planted-2@proxy",
    "SLACK_WEBHOOK": "https://hooks.example/planted-3",
    "GH_PAT": "planted-4",
    "HF_TOKEN": "planted-5",
    "NVIDIA_API_KEY": "planted-6",
    "AISP_LLM_KEY": "planted-7",
    "AISP_LLM_URL": "http://user:planted-8@host/v1",
}


def test_modules_in_the_working_folder_are_not_imported(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "work", tmp_path / "imported"
    folder.mkdir()
    for name in ("selectors", "random", "statistics", "platform", "json"):
        (folder / f"{name}.py").write_text(f"open({str(seen)!r}, 'a').write({name!r})\nraise ImportError\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f":{Path(__file__).parent}:")
    job = finished(jobs, jobs.submit("aisp_test_work", {}, timeout_s=30).id)
    assert not seen.exists()
    assert job.state is JobState.SUCCEEDED
    assert job.envelope is not None
    assert job.envelope["result"]["cwd"] == str(folder)


def test_secrets_reach_the_worker_but_not_the_disk(
    jobs: Jobs, store: Store, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    gate = tmp_path / "gate"
    job = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30)
    until(lambda: jobs.get(job.id).state is JobState.RUNNING)
    until(lambda: len(list(tree.marked("AISP_JOB_ID", job.id))) >= 2)  # the supervisor and its worker
    row = store.queue.row(job.id)
    processes = set(tree.marked("AISP_JOB_ID", job.id))
    with_it = {pid for name, value in SECRETS.items() for pid in tree.marked(name, value)}
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    gate.touch()
    finished(jobs, job.id)
    assert processes <= with_it
    assert row is not None
    assert {"PATH", "AISP_HOME", "PYTHONPATH"} <= json.loads(row["env"]).keys()
    assert {home / "aisp.db", home / "aisp.db-wal"} <= files.keys()
    assert [path for path, data in files.items() if b"planted" in data] == []
    ended = store.queue.row(job.id)
    assert ended is not None
    assert ended["env"] is None


def test_a_worker_that_is_stopped_is_ended(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = finished(jobs, jobs.submit("aisp_test_end", {"how": "stopped"}, timeout_s=600).id)
    assert job.state is JobState.FAILED
    assert (job.reason or "").startswith("STOPPED")


def test_a_supervisor_that_is_stopped_is_woken_by_who_looks(jobs: Jobs, store: Store, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=600)
    until(lambda: jobs.get(job.id).state is JobState.RUNNING)
    pid = store.job(job.id).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    gate.touch()
    assert finished(jobs, job.id).state is JobState.SUCCEEDED


def test_a_variable_is_either_remembered_or_passed_on() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "AISP_HOME": "/h", "CUDA_VISIBLE_DEVICES": "0", **SECRETS}
    assert remembered(environ).keys() == environ.keys() - SECRETS.keys()
    assert passed_on(environ) == SECRETS


def test_one_principal_cannot_fill_the_queue_of_another(
    jobs: Jobs, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_QUEUED_JOBS", "3")
    gate = tmp_path / "gate"
    first = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=30, resources=["cpu"], principal="alice")
    until(lambda: jobs.get(first.id).state is JobState.RUNNING)
    for _ in range(3):
        jobs.submit("aisp_test_work", {}, timeout_s=30, resources=["cpu"], principal="alice")
    with pytest.raises(Refused) as caught:
        jobs.submit("aisp_test_work", {}, timeout_s=30, resources=["cpu"], principal="alice")
    assert caught.value.code == "QUEUE_FULL"
    assert "AISP_QUEUED_JOBS" in (caught.value.hint or "")
    assert len(list((store.home / "runs").iterdir())) == 4  # a refused job leaves no folder
    last = jobs.submit("aisp_test_work", {}, timeout_s=30, resources=["cpu"], principal="bob")
    gate.touch()
    assert finished(jobs, last.id).state is JobState.SUCCEEDED
