"""Jobs in Kubernetes against a real control plane on this machine: interruptions, faults and overhead. Not a test.

    python validation/run_kubernetes.py --programs FOLDER [--jobs 20] [--kills 4] [--restarts 2] [--pairs 5]
        [--no-faults] [--out F]

FOLDER holds etcd, kube-apiserver, kube-controller-manager and kube-scheduler; the node is played, see
kubernetes_cluster.py. --kills: of the watcher. --restarts: of the API server, while jobs wait and run. Prints one JSON
document.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "jobs"), str(Path(__file__).parent)]
warnings.simplefilter("ignore")  # the server's certificate is its own

from kubernetes import client  # noqa: E402
from kubernetes_cluster import NAMESPACE, Cluster, Node, started  # noqa: E402

from aisp_mcp.errors import AispError  # noqa: E402
from aisp_mcp.jobs import starting  # noqa: E402
from aisp_mcp.jobs.manager import Jobs  # noqa: E402
from aisp_mcp.process import tree  # noqa: E402
from aisp_mcp.settings import Settings  # noqa: E402
from aisp_mcp.store.database import Store  # noqa: E402
from aisp_mcp.store.records.job import Job, JobState  # noqa: E402

PATIENCE_S = 300.0


def main() -> int:
    """Return 0 if no job was lost or ran twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--no-faults", action="store_true")
    for name, default in (("jobs", 20), ("kills", 4), ("restarts", 2), ("pairs", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aisp-kube-") as folder, started(Path(folder), options.programs) as found:
        cluster, node = found
        os.environ.update(
            AISP_HOME=f"{folder}/home",
            AISP_TOOL_MODULES="job_tools",
            PYTHONPATH=os.pathsep.join([str(ROOT / "tests" / "jobs"), str(ROOT)]),
            PYTHONWARNINGS="ignore",
            KUBECONFIG=str(cluster.kubeconfig("member")),
            AISP_EXECUTOR="kubernetes",
            AISP_KUBE_IMAGE="registry/aisp:1",
            AISP_REMOTE_PYTHON=sys.executable,
        )
        with Store(Path(folder) / "home") as store:
            jobs = Jobs(store, Settings.from_env())
            record: dict[str, Any] = {"server": cluster.version(), "client": version("kubernetes")}
            if not options.no_faults:
                record["faults"] = faults(jobs, cluster, node)
                save(record, options.out)
            record["interruptions"] = interruptions(jobs, cluster, node, options)
            save(record, options.out)
            record["overhead"] = overhead(jobs, options.pairs)
            end_watcher(jobs)
    save(record, options.out)
    print(json.dumps(record, indent=1))
    found_wrong = record["interruptions"]
    return int(found_wrong["lost"] + found_wrong["wrong"] + found_wrong["ran_twice"] > 0)


def save(record: dict[str, Any], out: str | None) -> None:
    if out:
        Path(out).write_text(json.dumps(record, indent=1) + "\n")


def submit(jobs: Jobs, tool: str = "aisp_test_work", env: dict[str, str] | None = None, **params: Any) -> str:
    return jobs.submit(tool, params, timeout_s=120, env=env).id


def finished(jobs: Jobs, job_id: str) -> Job:
    end = time.monotonic() + PATIENCE_S
    while not jobs.get(job_id).state.terminal and time.monotonic() < end:
        time.sleep(0.05)
    return jobs.get(job_id)


def overhead(jobs: Jobs, pairs: int) -> dict[str, Any]:
    """Seconds of the same job here and there, in turn; the first one there starts the watcher."""
    here, there = [], []
    finished(jobs, submit(jobs))
    for _ in range(pairs):
        for executor, taken in (("local", here), ("kubernetes", there)):
            began = time.monotonic()
            finished(jobs, submit(jobs, env={"AISP_EXECUTOR": executor}))
            taken.append(time.monotonic() - began)
    beyond = [b - a for a, b in zip(here, there, strict=True)]
    return {
        "pairs": pairs,
        "local_p50_s": round(statistics.median(here), 2),
        "kubernetes_p50_s": round(statistics.median(there), 2),
        "beyond_p50_s": round(statistics.median(beyond), 2),
        "load_average": os.getloadavg()[0],
    }


def interruptions(jobs: Jobs, cluster: Cluster, node: Node, options: argparse.Namespace) -> dict[str, Any]:
    """Many jobs while the watcher is killed and the API server restarts; each must run once and come back right."""
    chance, states, ids = random.Random(7), Counter[str](), list[str]()
    began = time.monotonic()
    done = threading.Event()

    def interrupt() -> None:
        actions = ["watcher killed"] * options.kills + ["API server killed, started again after 5 s"] * options.restarts
        chance.shuffle(actions)
        for action in actions:
            if done.wait(chance.uniform(3, 8)):
                return
            if action == "watcher killed":
                pid = starting.living_watcher(jobs.store.home, "kubernetes")
                if pid is None:
                    continue
                tree.kill([pid])
            else:
                cluster.stop_api()
                time.sleep(5)
                cluster.start_api()
            states[action] += 1

    before = len(node.ran)
    thread = threading.Thread(target=interrupt)
    thread.start()
    for number in range(options.jobs):
        ids.append(submit(jobs, label=f"n{number}", seconds=1.0))
        time.sleep(1)
    ended = [finished(jobs, job_id) for job_id in ids]
    done.set()
    thread.join()
    right = [
        job.state is JobState.SUCCEEDED and (job.envelope or {})["result"]["text"] == f"n{number}"
        for number, job in enumerate(ended)
    ]
    owners = Counter(name.rsplit("-", 1)[0] for name in node.ran[before:])
    return {
        "jobs": len(ids),
        "interruptions": dict(states),
        "api_server_ended_by_itself": cluster.ended,
        "succeeded": sum(job.state is JobState.SUCCEEDED for job in ended),
        "lost": sum(not job.state.terminal or job.state is JobState.LOST for job in ended),
        "wrong": right.count(False),
        "ran_twice": sum(count > 1 for count in owners.values()),
        "left_there": left_there(cluster),
        "seconds": round(time.monotonic() - began, 1),
        "other_reasons": sorted({job.reason or "" for job in ended if job.state is not JobState.SUCCEEDED}),
    }


def left_there(cluster: Cluster) -> int:
    """Objects of ours in the namespace, once the garbage collector has had time."""
    core, batch = client.CoreV1Api(cluster.api()), client.BatchV1Api(cluster.api())
    end = time.monotonic() + 60
    while True:
        ours = {"label_selector": "app.kubernetes.io/managed-by=aisp"}
        lists = (core.list_namespaced_config_map, core.list_namespaced_pod, batch.list_namespaced_job)
        count = sum(len(call(NAMESPACE, **ours).items) for call in lists)
        if count == 0 or time.monotonic() > end:
            return count
        time.sleep(0.5)


def faults(jobs: Jobs, cluster: Cluster, node: Node) -> dict[str, str]:
    """One sentence for each."""
    core, batch = client.CoreV1Api(cluster.api()), client.BatchV1Api(cluster.api())
    found = {}

    def of(name: str, env: dict[str, str] | None = None, tool: str = "aisp_test_work", **params: Any) -> None:
        try:
            job = finished(jobs, submit(jobs, tool, env=env, **params))
            found[name] = f"{job.state.value}: {job.reason or 'ok'}"
        except AispError as error:
            found[name] = f"{error.code}: {error}"

    def while_running(name: str, act: Callable[[str], object], state: JobState = JobState.RUNNING) -> None:
        job_id = submit(jobs, seconds=100)
        job_name = starting_name(job_id)
        end = time.monotonic() + PATIENCE_S
        while jobs.get(job_id).state is not state and time.monotonic() < end:
            time.sleep(0.05)
        act(job_name)
        job = finished(jobs, job_id)
        found[name] = f"{job.state.value}: {job.reason or 'ok'}"

    def pod_of(job_name: str) -> str:
        return str(core.list_namespaced_pod(NAMESPACE, label_selector=f"job-name={job_name}").items[0].metadata.name)

    for name, user, env in (
        ("no rights", "stranger", {}),
        ("namespace missing", "admin", {"AISP_KUBE_NAMESPACE": "nowhere"}),
        (
            "resource of no node, waited a minute",
            "member",
            {"AISP_KUBE_RESOURCES": "nvidia.com/gpu=8", "AISP_KUBE_WAIT": "1"},
        ),
        ("label of no node, waited a minute", "member", {"AISP_KUBE_NODE": "pool=z", "AISP_KUBE_WAIT": "1"}),
        ("memory that is no quantity there", "member", {"AISP_KUBE_RESOURCES": "memory=1E1"}),
        ("name of a resource without a domain", "member", {"AISP_KUBE_RESOURCES": "gpu=1"}),
        ("no such Python", "member", {"AISP_REMOTE_PYTHON": "/nowhere/python3"}),
        ("a Python without packages", "member", {"AISP_REMOTE_PYTHON": "/usr/bin/python3"}),
    ):
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig(user))
        of(name, env)
    node.pull["absent"] = ("ErrImagePull", 'failed to pull and unpack image "registry/absent:1": not found')
    of("no such image", {"AISP_KUBE_IMAGE": "registry/absent:1"})
    of("an image's name in capitals", {"AISP_KUBE_IMAGE": "registry/UPPER CASE"})
    os.environ["KUBECONFIG"] = "/nowhere/config"
    of("no kubeconfig")
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig("member"))
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    core.create_namespaced_resource_quota(NAMESPACE, quota)
    time.sleep(3)
    waits = submit(jobs, env={"AISP_KUBE_WAIT": "1"})
    job = finished(jobs, waits)
    found["quota of pods, waited a minute"] = f"{job.state.value}: {job.reason or 'ok'}"
    core.delete_namespaced_resource_quota("q", NAMESPACE)
    core.create_namespaced_resource_quota(
        NAMESPACE, {"metadata": {"name": "j"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    )
    time.sleep(3)
    of("quota of Jobs")
    core.delete_namespaced_resource_quota("j", NAMESPACE)
    of("a label with a newline", label="a\nb")
    of("its worker is killed", tool="aisp_test_end", how="killed")
    of("no GPU there", tool="aisp_test_end", how="refuse")
    while_running("its pod is deleted", lambda name: core.delete_namespaced_pod(pod_of(name), NAMESPACE))
    while_running(
        "its Job is deleted by somebody",
        lambda name: batch.delete_namespaced_job(name, NAMESPACE, propagation_policy="Background"),
    )
    while_running("its first process is killed", lambda name: os.kill(node.running[pod_of(name)].pid, 9))
    job_id = submit(jobs, seconds=100)
    while jobs.get(job_id).state is not JobState.RUNNING:
        time.sleep(0.05)
    jobs.cancel(job_id)
    job = finished(jobs, job_id)
    found["cancelled while it runs"] = f"{job.state.value}: {job.reason}"
    found["objects left in the namespace"] = str(left_there(cluster))
    return found


def starting_name(job_id: str) -> str:
    from aisp_mcp.jobs.executors.kubernetes import job_name

    return job_name(job_id)


def end_watcher(jobs: Jobs) -> None:
    pid = starting.living_watcher(jobs.store.home, "kubernetes")
    if pid:
        tree.kill([pid])


if __name__ == "__main__":
    sys.exit(main())
