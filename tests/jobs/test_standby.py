"""Jobs whose supervisor is forked from a process that has loaded their tool."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from job_helpers import finished
from waiting import until

from aisp_mcp.jobs import ready
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.store import queue
from aisp_mcp.store.records.job import JobState

pytestmark = pytest.mark.usefixtures("new_supervisors")

FORKED, NEW = "1 aisp_mcp.jobs.standby", "1 aisp_mcp.jobs.supervisor"


def answer(jobs: Jobs, **params: Any) -> dict[str, Any]:
    """The result of a job that reports how it was started."""
    return result(jobs, jobs.submit("aisp_test_calls", params, timeout_s=40).id)


def result(jobs: Jobs, job_id: str) -> dict[str, Any]:
    """The result of a job."""
    job = finished(jobs, job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.envelope is not None
    return {**job.envelope["result"], "job": job.id}


def standing_by(home: Path) -> int:
    """Pid of the process."""
    pids: list[int] = []
    until(lambda: pids.extend(running(home, "standby")) or pids)
    return pids[0]


def running(home: Path, module: str) -> list[int]:
    """Pids of the processes of this store that run a module of jobs."""
    found = []
    for pid in tree.marked("AISP_HOME", str(home)):
        with suppress(OSError):
            found += [pid] if f"aisp_mcp.jobs.{module}" in Path(f"/proc/{pid}/cmdline").read_text() else []
    return found


def test_no_job_sees_what_an_earlier_one_has_changed(new_interpreters: None, jobs: Jobs, kept: Path) -> None:
    for _ in range(2):
        result = answer(jobs)
        assert result["text"] == FORKED
        assert result["variable"] == result["job"]
        assert result["job"] in result["tmp"]


def test_another_environment_needs_new_interpreters(jobs: Jobs, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHLVL", "7")
    assert answer(jobs)["text"] == FORKED
    monkeypatch.setenv("A_LIBRARY_READS_THIS", "1")
    assert answer(jobs)["text"] == NEW


def test_the_time_limit_and_the_log_are_those_of_any_job(jobs: Jobs, kept: Path, tmp_path: Path) -> None:
    slow = jobs.submit("aisp_test_work", {"gate": str(tmp_path / "never")}, timeout_s=1)
    assert "longer than 1 s" in (finished(jobs, slow.id).reason or "")
    loud = finished(jobs, jobs.submit("aisp_test_flood", {"megabytes": 1}, timeout_s=40).id)
    assert jobs.log_tail(loud.id).endswith("the end\n")


def test_it_ends_when_its_folder_is_removed(jobs: Jobs, kept: Path, home: Path) -> None:
    pid = standing_by(home)
    kept.rmdir()
    until(lambda: tree.start_time(pid) is None)
    assert not os.listdir(home / ready.FOLDER)
    assert answer(jobs)["text"] == NEW


def test_a_killed_one_is_not_missed(jobs: Jobs, kept: Path, home: Path) -> None:
    pid = standing_by(home)
    os.kill(pid, signal.SIGKILL)
    until(lambda: tree.start_time(pid) is None)
    assert answer(jobs)["text"] == NEW


def test_a_stopped_one_costs_time_only(jobs: Jobs, kept: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = standing_by(home)
    os.kill(pid, signal.SIGSTOP)
    job = jobs.submit("aisp_test_calls", {}, timeout_s=40)
    with monkeypatch.context() as patience:  # for the first attempt alone: an interpreter may need longer to start
        patience.setattr(queue, "SPAWN_AGAIN_S", 0.1)
        until(lambda: jobs.get(job.id) and running(home, "supervisor"))
    assert result(jobs, job.id)["text"] == NEW
    until(lambda: not running(home, "supervisor"))  # one more may have been started, and would take the next job
    os.kill(pid, signal.SIGCONT)  # it now forks a supervisor that finds its job ended
    assert answer(jobs)["text"] == FORKED
