"""Jobs in a simulated cluster, whose pods are processes of this machine."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forks
import pytest
from job_helpers import answer, end_watcher, finished, submit
from kubernetes_api import NAMESPACE, Answer, Server
from waiting import until

from aisp_mcp.errors import AispError, Unavailable
from aisp_mcp.jobs import pod, starting
from aisp_mcp.jobs.executors import kubernetes
from aisp_mcp.jobs.executors.kubernetes import Kubernetes, manifest, wanted
from aisp_mcp.jobs.executors.placement import kubernetes_settings
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.jobs.watcher import Watcher
from aisp_mcp.process import tree
from aisp_mcp.process.python import module
from aisp_mcp.store.records.job import JobState

pytest.importorskip("kubernetes")
pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 90.0


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
    end_watcher(jobs, "kubernetes")


def said(jobs: Jobs, job_id: str, words: str) -> None:
    until(lambda: (p := jobs.get(job_id).progress) is not None and words in (p.message or ""), PATIENCE_S)


@pytest.mark.slow
def test_a_job_outlives_watcher_and_api_server_and_comes_back_whole(jobs: Jobs, server: Server, tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "sources" / "journal"
    journal.parent.mkdir()
    journal.touch()  # a file that exists here is sent, with its folder
    job_id = submit(jobs, gate=str(gate), journal=str(journal), label="kept")
    said(jobs, job_id, "half way")
    server.down = True
    said(jobs, job_id, "unable to handle the request")
    end_watcher(jobs, "kubernetes")
    gate.touch()
    server.down = False
    job = finished(jobs, job_id, PATIENCE_S)
    assert (job.state, job.exit_code, answer(job)["text"]) == (JobState.SUCCEEDED, 0, "kept")
    (copy,) = server.folder.glob("*/aisp/job/*/sources/journal")
    assert [line.split()[0] for line in copy.read_text().splitlines()] == ["begin", "end"]  # it ran once
    assert job.envelope is not None
    assert job.envelope["meta"]["host"] == f"node-a (kubernetes://{NAMESPACE} (here))"
    until(lambda: not any(server.kinds[kind] for kind in ("jobs", "configmaps", "pods")))


@pytest.mark.slow
def test_a_running_job_is_cancelled_there_with_all_it_started(jobs: Jobs, server: Server, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job_id = submit(jobs, "aisp_test_daemon", pids=str(pids))
    until(pids.exists, PATIENCE_S)
    jobs.cancel(job_id)
    assert finished(jobs, job_id, PATIENCE_S).state is JobState.CANCELLED
    until(lambda: not [pid for pid in map(int, pids.read_text().split()) if tree.start_time(pid)])
    assert not server.kinds["jobs"]


def test_an_attempt_after_one_that_was_cut_off_finds_its_job(jobs: Jobs, server: Server) -> None:
    server.refused["POST", "configmaps"] = Answer(500, "InternalError", "etcdserver: request timed out")
    server.unschedulable = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    job_id = submit(jobs, label="once")
    said(jobs, job_id, "etcdserver: request timed out")
    end_watcher(jobs, "kubernetes")
    server.refused.clear()
    said(jobs, job_id, "waits for a node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    server.unschedulable = ""
    assert answer(finished(jobs, job_id, PATIENCE_S))["text"] == "once"
    assert len([name for name in server.created if name.startswith("jobs/")]) == 1


FORBIDDEN = Answer(
    403,
    "Forbidden",
    'jobs.batch is forbidden: User "me" cannot create resource "jobs" in API group "batch" in the namespace "bench"',
)
QUOTA = Answer(
    403,
    "Forbidden",
    'configmaps "aisp-0" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=0, '
    "limited: count/configmaps=0",
)


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("fault", "env", "code", "words"),
    [
        slow({"refused": {("POST", "jobs"): FORBIDDEN}}, {}, "KUBE_REFUSED", 'cannot create resource "jobs"'),
        ({"refused": {("POST", "configmaps"): QUOTA}}, {}, "KUBE_REFUSED", "exceeded quota"),
        slow({}, {"AISP_KUBE_NAMESPACE": "nowhere"}, "KUBE_REFUSED", 'namespaces "nowhere" not found'),
        slow(
            {"pull": ("ErrImagePull", "failed to resolve reference registry/aisp:1: registry/aisp:1: not found")},
            {},
            "KUBE_IMAGE",
            "registry/aisp:1: not found",
        ),
        slow(
            {"pull": ("CreateContainerConfigError", 'secret "s" not found')}, {}, "KUBE_NOT_STARTED", 'secret "s" not'
        ),
        slow({}, {"AISP_REMOTE_PYTHON": "/nowhere/python3"}, "KUBE_NOT_STARTED", "/nowhere/python3"),
    ],
)
def test_what_the_cluster_refuses_is_one_sentence(
    jobs: Jobs,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, object],
    env: dict[str, str],
    code: str,
    words: str,
) -> None:
    for name, value in fault.items():
        setattr(server, name, value)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    job = finished(jobs, submit(jobs), PATIENCE_S)
    assert job.reason is not None
    assert job.reason.startswith(f"{code}: ")
    assert words in job.reason
    assert "\n" not in job.reason
    until(lambda: not server.kinds["jobs"])


def test_a_server_that_knows_no_roles_yet_is_asked_again(
    jobs: Jobs, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ensure_watchers", lambda *_: [])  # looked at by hand: no second passes
    job_id = submit(jobs)
    rows = [dict(jobs.store.queue.row(job_id) or {})]
    executor = Kubernetes()
    server.refused["POST", "jobs"] = FORBIDDEN
    outcome = executor.submit(rows)[job_id]
    assert (outcome.handle, "cannot create resource" in outcome.message) == (None, True)
    monkeypatch.setattr(kubernetes, "FORBIDDEN_S", 0.0)
    with pytest.raises(Unavailable, match="cannot create resource"):
        executor.submit(rows)
    server.refused.clear()
    assert executor.submit(rows)[job_id].handle
    executor.forget(rows[0])
    monkeypatch.undo()
    monkeypatch.setenv("AISP_HOME", str(jobs.store.home))
    jobs.store.queue.end(job_id, JobState.FAILED, reason="of no interest")


def test_a_job_waits_for_a_node_as_long_as_it_may(jobs: Jobs, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.unschedulable = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    monkeypatch.setenv("AISP_KUBE_WAIT", "1")
    monkeypatch.setattr(starting, "ensure_watchers", lambda *_: [])  # looked at by hand: no minute passes
    job_id = submit(jobs)
    executor, row = Kubernetes(), dict(jobs.store.queue.row(job_id) or {})
    row["handle"] = executor.submit([row])[job_id].handle
    assert executor.poll([row])[job_id].phase == "waiting"
    row["created_at"] -= 61
    assert executor.poll([row])[job_id].word == "UNSCHEDULABLE"
    monkeypatch.undo()
    monkeypatch.setenv("AISP_HOME", str(jobs.store.home))
    Watcher(jobs.store.db, "kubernetes", executor).look()
    reason = jobs.get(job_id).reason or ""
    assert reason.startswith("UNSCHEDULABLE: Kubernetes cannot run aisp_test_work: after ")
    assert reason.endswith(" it still waits for a node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_the_pod_is_what_the_settings_and_the_manifest_say(server: Server, tmp_path: Path) -> None:
    own = tmp_path / "pod.yaml"
    own.write_text(
        "kind: Pod\nspec:\n  serviceAccountName: team\n  imagePullSecrets: [{name: s}]\n"
        "  containers: [{name: main, env: [{name: A, value: b}]}]\n"
    )
    url = f"kubernetes://team?image=i:1&resources=cpu%3D2,nvidia.com/gpu=1&node=pool=a&queue=q&exclusive=1&pod={own}"
    environ = {"KUBECONFIG": str(server.kubeconfig()), "AISP_KUBE_IMAGE": "other"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", environ["KUBECONFIG"])
        request = wanted(kubernetes_settings(url, environ), "python3", 60)
    job = manifest("aisp-x", "aisp_test_work", request, 2, "0" * 64)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert (request["namespace"], container["name"], container["image"]) == ("team", "main", "i:1")
    assert container["resources"]["limits"] == {"cpu": "2", "nvidia.com/gpu": "1"}
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["serviceAccountName"] == "team"
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert job["spec"]["suspend"] is True
    assert pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert {"name": "A", "value": "b"} in container["env"]


@pytest.mark.parametrize(
    ("url", "env", "code"),
    [
        ("kubernetes", {}, "BAD_PLACEMENT"),
        ("kubernetes://bench?image=a%0Ab", {}, "BAD_PLACEMENT"),
        ("kubernetes://bench?colour=red&image=i", {}, "BAD_EXECUTOR"),
        ("kubernetes://be nch", {}, "BAD_EXECUTOR"),
        ("kubernetes://bench?image=i&resources=gpu", {}, "BAD_PLACEMENT"),
        ("kubernetes://bench?image=i&context=other", {}, "KUBE_CONFIG"),
        ("kubernetes://bench?image=i", {"KUBECONFIG": "/nowhere/config"}, "KUBE_CONFIG"),
        ("kubernetes://bench?image=i&pod=/nowhere/pod.yaml", {}, "BAD_PLACEMENT"),
    ],
)
def test_a_request_that_means_nothing_makes_no_job(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, url: str, env: dict[str, str], code: str
) -> None:
    monkeypatch.delenv("AISP_KUBE_IMAGE")
    for name, value in {"AISP_EXECUTOR": url, **env}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AispError) as caught:
        submit(jobs)
    assert caught.value.code == code
    assert jobs.store.list_jobs()[0] == []


def test_an_answer_that_the_node_has_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "envelope.json").write_text('{"status": "ok"}')
    (tmp_path / "large").write_bytes(os.urandom(pod.ANSWER_BYTES))
    told = io.StringIO()
    pod.write_answer(tmp_path, told)
    answered = pod.read_answer(told.getvalue())
    assert answered == ({"envelope.json": b'{"status": "ok"}'}, ["large"])
    lines = told.getvalue().splitlines()
    assert pod.read_answer("\n".join(lines[:1] + lines[2:])) is None
    assert pod.read_answer("\n".join(lines[:-1])) is None


@pytest.mark.parametrize(("user_may", "code"), [(True, 0), (False, 1)])
def test_doctor_says_what_is_there_and_what_is_missing(jobs: Jobs, server: Server, user_may: bool, code: int) -> None:
    if not user_may:
        server.refused["POST", "jobs"] = FORBIDDEN
    done = forks.run(
        module("aisp_mcp.front.cli.main", "doctor", "--executor", f"kubernetes://{NAMESPACE}", "--json"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert (done.returncode, findings["rights"]["ok"], findings["job"]["ok"]) == (code, user_may, user_may)
    assert findings["connection"]["message"].startswith(f"{server.url}, v1.20.2, namespace {NAMESPACE}, context here")
