"""Jobs in a simulated cluster, whose pods are processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_helpers import finished, until
from kubernetes_api import NAMESPACE, Server

from aisp_mcp.jobs import starting
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.store.records.job import Job, JobState

pytest.importorskip("kubernetes")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Server(folder)
    yield made
    made.stop()


@pytest.fixture
def jobs(jobs: Jobs, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The manager of a home whose jobs go to the cluster."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
    monkeypatch.setenv("AISP_EXECUTOR", "kubernetes")
    monkeypatch.setenv("AISP_KUBE_IMAGE", "registry/aisp:1")
    monkeypatch.setenv("AISP_REMOTE_PYTHON", sys.executable)
    yield jobs
    server.unschedulable, server.pull, server.down, server.refused = "", ("", ""), False, {}
    for job in jobs.store.list_jobs()[0]:
        if not job.state.terminal:
            jobs.cancel(job.id)
            finished(jobs, job.id)
    end_watcher(jobs)


def end_watcher(jobs: Jobs) -> None:
    watcher = starting.living_watcher(jobs.store.home, "kubernetes")
    if watcher is not None:
        tree.kill([watcher])
        until(lambda: tree.start_time(watcher) is None)


def submit(jobs: Jobs, tool: str = "aisp_test_work", timeout_s: float = 60, **params: object) -> str:
    return jobs.submit(tool, params, timeout_s=timeout_s).id


def answer(job: Job) -> dict[str, object]:
    assert job.envelope is not None, job.reason
    return dict(job.envelope["result"])


def said(jobs: Jobs, job_id: str, words: str) -> None:
    until(lambda: (p := jobs.get(job_id).progress) is not None and words in (p.message or ""))


def test_a_job_outlives_its_watcher_and_comes_back_whole(jobs: Jobs, server: Server, tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "sources" / "journal"
    journal.parent.mkdir()
    journal.touch()  # a file that exists here is sent, with its folder
    job_id = submit(jobs, gate=str(gate), journal=str(journal), label="kept")
    said(jobs, job_id, "half way")
    end_watcher(jobs)
    gate.touch()
    job = finished(jobs, job_id)
    assert (job.state, job.exit_code, answer(job)["text"]) == (JobState.SUCCEEDED, 0, "kept")
    (copy,) = server.folder.glob("*/aisp/work/*/sources/journal")
    assert [line.split()[0] for line in copy.read_text().splitlines()] == ["begin", "end"]  # it ran once
    assert job.envelope is not None
    assert job.envelope["meta"]["host"] == f"node-a (kubernetes://{NAMESPACE} (here))"
    until(lambda: not any(server.kinds[kind] for kind in ("jobs", "configmaps", "pods")))
