"""Jobs on another machine through a real sshd, which the tests start and end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import forks
import pytest
from job_helpers import answer, end_watcher, finished, submit
from ssh_host import Host, missing
from waiting import until

from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.process.python import module
from aisp_mcp.store.records.job import JobState

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
    pytest.mark.xdist_group("ssh"),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("ssh"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def jobs(jobs: Jobs, host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The manager of a home whose jobs go to the host."""
    monkeypatch.setenv("PATH", f"{host.folder}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AISP_EXECUTOR", host.url)
    monkeypatch.setenv("AISP_REMOTE_PYTHON", sys.executable)
    yield jobs
    for job in jobs.store.list_jobs()[0]:
        if not job.state.terminal:
            jobs.cancel(job.id)
            finished(jobs, job.id)
    end_watcher(jobs, host.url)


def half_way(jobs: Jobs, job_id: str) -> None:
    until(lambda: (p := jobs.get(job_id).progress) is not None and p.message == "half way")


def cut_once(host: Host) -> None:
    """Let the next ssh end as one does whose connection is cut after the log-in."""
    program = host.folder / "bin" / "ssh"
    usual, cut = program.read_text(), "echo 'Connection to 127.0.0.1 closed by remote host.' >&2; exit 255"
    program.with_suffix(".usual").write_text(usual)
    program.write_text(f"#!/bin/sh\nmv $0.usual $0; chmod 700 $0; {cut}\n")


def left_there(host: Host) -> list[Path]:
    return list(host.there.glob(".local/aisp/host-*/runs/*"))


def test_a_job_outlives_its_connection_and_comes_back_whole(jobs: Jobs, host: Host, tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "sources" / "journal"
    journal.parent.mkdir()
    journal.touch()  # a file that exists here is sent, with its folder
    cut_once(host)
    job_id = submit(jobs, gate=str(gate), journal=str(journal), label="kept")
    half_way(jobs, job_id)
    assert host.cut() == 1
    gate.touch()
    job = finished(jobs, job_id)
    assert (job.state, job.exit_code, answer(job)["text"]) == (JobState.SUCCEEDED, 0, "kept")
    (copy,) = host.there.glob(".cache/aisp-host/trees/*/sources/journal")
    assert [line.split()[0] for line in copy.read_text().splitlines()] == ["begin", "end"]  # it ran once
    until(lambda: not left_there(host))
    second = submit(jobs, "aisp_test_end", how="refuse")
    refused = finished(jobs, second)
    assert refused.envelope is not None
    assert (refused.state, refused.envelope["error"]["code"]) == (JobState.FAILED, "NO_GPU")


def test_a_running_job_is_cancelled_there_with_all_it_started(jobs: Jobs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job_id = submit(jobs, "aisp_test_daemon", pids=str(pids))
    until(pids.exists)
    jobs.cancel(job_id)
    assert finished(jobs, job_id).state is JobState.CANCELLED
    until(lambda: not [pid for pid in map(int, pids.read_text().split()) if tree.start_time(pid)])


@pytest.mark.parametrize(
    ("key", "python", "code", "words"),
    [
        ("wrong_key", sys.executable, "SSH_REFUSED", "Permission denied"),
        ("user_key", "/nowhere/python3", "HOST_PYTHON", "/nowhere/python3"),
    ],
)
def test_a_host_that_cannot_run_it_is_one_sentence(
    jobs: Jobs, host: Host, monkeypatch: pytest.MonkeyPatch, key: str, python: str, code: str, words: str
) -> None:
    monkeypatch.setenv("AISP_REMOTE_PYTHON", python)
    host.use_key(key)
    try:
        job = finished(jobs, submit(jobs))
    finally:
        host.use_key("user_key")
    assert job.reason is not None
    assert job.reason.startswith(f"{code}: {host.url} did not take aisp_test_work: ")
    assert words in job.reason
    assert "\n" not in job.reason


@pytest.mark.parametrize(
    ("python", "code", "found"), [(sys.executable, 0, "python"), ("/nowhere/python3", 1, "connection")]
)
def test_doctor_says_what_is_there_and_what_is_missing(
    jobs: Jobs, host: Host, python: str, code: int, found: str
) -> None:
    words = module("aisp_mcp.front.cli.main", "doctor", "--executor", host.url, "--remote-python", python, "--json")
    done = forks.run(words, capture_output=True, text=True, timeout=50)
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert (done.returncode, findings[found]["ok"]) == (code, code == 0)
    assert python in findings[found]["message"]
