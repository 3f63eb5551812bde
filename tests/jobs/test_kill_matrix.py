"""Whoever is killed, whatever breaks: the answer is there or its absence is explained, and no process stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_helpers import finished
from waiting import until

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import StoreError
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState

SERVER = """
import json, signal, sys
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store
settings = Settings.from_env()
jobs = Jobs(Store(settings.home), settings)
print(jobs.submit("aisp_test_work", json.loads(sys.argv[1]), timeout_s=40).id, flush=True)
signal.pause()
"""


@pytest.fixture(params=["new", "forked"])
def jobs(jobs: Jobs, new_supervisors: None, request: pytest.FixtureRequest) -> Jobs:
    """A manager whose jobs are new interpreters, or forks of a process that stands by with their tool."""
    if request.param == "forked":
        request.getfixturevalue("kept")
    return jobs


def code_of(job: Job) -> str:
    """The error code of its envelope, which must be a valid one."""
    error = Envelope.model_validate(job.envelope).error
    assert error is not None
    return error.code


def worker_of(job_id: str, supervisor: int) -> int:
    """Pid of the worker, once it is there."""
    until(lambda: tree.children(supervisor))
    return tree.children(supervisor)[0]


def running(jobs: Jobs, job_id: str) -> int:
    """Pid of the supervisor, once the job runs."""
    until(lambda: jobs.store.job(job_id).state is JobState.RUNNING)
    pid = jobs.store.job(job_id).pid
    assert pid is not None
    return pid


def daemon_of(path: Path) -> int:
    """Pid of the daemonised grandchild, once it is there."""
    until(lambda: path.exists() and path.read_text())
    return int(path.read_text().split()[0])


def gone(pid: int) -> bool:
    return tree.start_time(pid) is None


def test_sigkill_of_the_server_leaves_the_job_and_its_answer(home: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    args = json.dumps({"gate": str(gate), "label": "survivor"})
    with subprocess.Popen([sys.executable, "-c", SERVER, args], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        job_id = server.stdout.readline().strip()
        with Store(home) as store:
            running(Jobs(store, Settings.from_env()), job_id)
        server.kill()
        server.wait()
    gate.touch()
    with Store(home) as store:  # the next server
        job = finished(Jobs(store, Settings.from_env()), job_id)
    assert job.state is JobState.SUCCEEDED
    assert job.envelope is not None
    assert job.envelope["result"]["text"] == "survivor"


def test_sigkill_of_the_server_does_not_stop_its_queue(home: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Store(home) as store:
        jobs = Jobs(store, Settings.from_env())
        first = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=40, resources=["cpu"])
        second = jobs.submit("aisp_test_work", {}, timeout_s=40, resources=["cpu"])
        running(jobs, first.id)
        gate.touch()
        # Only rows are read here: nobody but the first job's supervisor can start the second.
        until(lambda: store.job(second.id).state is JobState.SUCCEEDED)


def test_sigkill_of_the_worker(jobs: Jobs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = jobs.submit("aisp_test_daemon", {"pids": str(pids)}, timeout_s=40)
    daemon = daemon_of(pids)
    os.kill(worker_of(job.id, running(jobs, job.id)), signal.SIGKILL)
    ended = finished(jobs, job.id)
    assert (ended.state, code_of(ended), ended.exit_code) == (JobState.FAILED, "CRASHED", -9)
    until(lambda: gone(daemon))  # killed before, but the kernel takes its moment


def test_sigkill_of_the_supervisor(jobs: Jobs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = jobs.submit("aisp_test_daemon", {"pids": str(pids)}, timeout_s=40)
    daemon = daemon_of(pids)
    supervisor = running(jobs, job.id)
    worker = worker_of(job.id, supervisor)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: gone(worker))  # with nobody looking: the kernel does it
    ended = finished(jobs, job.id)
    assert (ended.state, code_of(ended)) == (JobState.LOST, "LOST")
    until(lambda: gone(daemon))  # killed before, but the kernel takes its moment
    assert not list(Path("/tmp").glob(f"aisp-{job.id}*"))


def test_sigkill_of_supervisor_and_server_is_noticed_by_the_next_server(home: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with Store(home) as store:
        jobs = Jobs(store, Settings.from_env())
        job = jobs.submit("aisp_test_daemon", {"pids": str(pids)}, timeout_s=40, resources=["cpu"])
        daemon = daemon_of(pids)
        waiting = jobs.submit("aisp_test_work", {}, timeout_s=40, resources=["cpu"])
        supervisor = running(jobs, job.id)
        os.kill(supervisor, signal.SIGKILL)
    until(lambda: gone(supervisor))
    with Store(home) as store:
        jobs = Jobs(store, Settings.from_env())
        assert jobs.reconcile() == 1
        assert store.job(job.id).state is JobState.LOST
        until(lambda: gone(daemon))  # killed before, but the kernel takes its moment
        assert finished(jobs, waiting.id).state is JobState.SUCCEEDED
        assert jobs.reconcile() == 0


def test_a_written_answer_counts_even_if_the_supervisor_died(jobs: Jobs, tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "journal"
    job = jobs.submit("aisp_test_work", {"gate": str(gate), "journal": str(journal)}, timeout_s=40)
    supervisor = running(jobs, job.id)
    until(journal.exists)  # the worker has begun: before that, a stopped supervisor would start none
    os.kill(supervisor, signal.SIGSTOP)  # it sees nothing of the worker's end
    gate.touch()
    until(lambda: jobs.store.db.first("SELECT 1 FROM jobs WHERE id = ? AND envelope IS NOT NULL", job.id))
    os.kill(supervisor, signal.SIGKILL)
    assert finished(jobs, job.id).state is JobState.SUCCEEDED


def test_time_out_with_a_daemonised_grandchild(jobs: Jobs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    for timeout_s in (2, 8, 32):  # until the grandchild has begun before it
        ended = finished(jobs, jobs.submit("aisp_test_daemon", {"pids": str(pids)}, timeout_s=timeout_s).id)
        assert (ended.state, code_of(ended)) == (JobState.FAILED, "TIMEOUT")
        if pids.exists():
            break
    daemon = daemon_of(pids)
    until(lambda: gone(daemon))  # killed before, but the kernel takes its moment


def test_a_daemon_does_not_outlive_a_job_that_succeeds(jobs: Jobs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = jobs.submit("aisp_test_daemon", {"pids": str(pids), "hang": False}, timeout_s=40)
    assert finished(jobs, job.id).state is JobState.SUCCEEDED
    assert gone(daemon_of(pids))


def test_cancel(jobs: Jobs, home: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = jobs.submit("aisp_test_daemon", {"pids": str(pids)}, timeout_s=40)
    daemon = daemon_of(pids)
    jobs.cancel(job.id)
    ended = finished(jobs, job.id)
    assert (ended.state, code_of(ended)) == (JobState.CANCELLED, "CANCELLED")
    until(lambda: gone(daemon))  # killed before, but the kernel takes its moment
    assert (home / "runs" / job.id).is_dir()  # what was written so far stays


def test_a_reused_pid_is_not_taken_for_the_supervisor(jobs: Jobs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = jobs.submit("aisp_test_work", {"gate": str(gate)}, timeout_s=40)
    supervisor = running(jobs, job.id)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: gone(supervisor))
    # As if the kernel had given the pid to this very process, which then must not be signalled either.
    jobs.store.db.change("UPDATE jobs SET pid = ? WHERE id = ?", os.getpid(), job.id)
    assert finished(jobs, job.id).state is JobState.LOST


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"no small file system can be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no free byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return ballast


def submit_many(jobs: Jobs) -> None:
    for _ in range(50):
        jobs.submit("aisp_test_work", {"label": "x" * 20_000}, timeout_s=40, resources=["cpu"])


def test_a_full_disk_refuses_new_jobs_and_keeps_running_ones(
    home: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_HOME", str(small_disk / "home"))
    gate = tmp_path / "gate"
    with Store(small_disk / "home") as store:
        jobs = Jobs(store, Settings.from_env())
        job = jobs.submit("aisp_test_ballast", {"kilobytes": 200, "gate": str(gate)}, timeout_s=40)
        running(jobs, job.id)
        ballast = fill(small_disk)
        with pytest.raises(StoreError) as caught:
            submit_many(jobs)  # the first rows may still fit into pages that are there
        assert caught.value.code == "STORE_FULL"
        os.truncate(ballast, ballast.stat().st_size - 100_000)  # too little for the tables of another store
        with pytest.raises(StoreError) as caught:
            Store(small_disk / "other")
        assert caught.value.code == "STORE_FULL"
        fill(small_disk)
        gate.touch()
        ended = finished(jobs, job.id)
        assert ended.state is JobState.SUCCEEDED  # thanks to the reserve
        assert ended.envelope is not None
        assert len(ended.envelope["result"]["text"]) == 200_000
        ballast.unlink()
        for queued in store.list_jobs(limit=100)[0]:
            assert finished(jobs, queued.id).state is JobState.SUCCEEDED


def damage(home: Path) -> None:
    """Overwrite all pages but the first two with noise, as a failing disk would."""
    with Store(home) as store:
        store.db.first("PRAGMA wal_checkpoint(TRUNCATE)")
    path = home / "aisp.db"
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))


def test_a_corrupt_database_is_said_and_the_answer_is_still_there(home: Path) -> None:
    with Store(home) as store:
        jobs = Jobs(store, Settings.from_env())
        job = finished(jobs, jobs.submit("aisp_test_work", {"label": "kept"}, timeout_s=40).id)
    damage(home)
    with pytest.raises(StoreError) as caught, Store(home) as store:
        Jobs(store, Settings.from_env()).get(job.id)
    assert caught.value.code == "STORE_CORRUPT"
    assert "aisp.db" in str(caught.value.hint)
    assert "envelope.json" in str(caught.value.hint)
    stored = json.loads((home / "runs" / job.id / "envelope.json").read_text())
    assert stored["result"]["text"] == "kept"


def test_a_database_damaged_while_a_job_runs_loses_no_answer(home: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Store(home) as store:
        jobs = Jobs(store, Settings.from_env())
        job = jobs.submit("aisp_test_work", {"gate": str(gate), "label": "kept"}, timeout_s=40)
        supervisor = running(jobs, job.id)
        worker_of(job.id, supervisor)
        until(lambda: jobs.get(job.id).progress is not None)
    damage(home)
    gate.touch()
    until(lambda: gone(supervisor))
    assert json.loads((home / "runs" / job.id / "envelope.json").read_text())["result"]["text"] == "kept"
