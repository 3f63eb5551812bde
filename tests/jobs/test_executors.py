"""Executors as settings: on the command line, for one call, and for a debugger."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import forks
import pytest
from waiting import until

from aisp_mcp.envelope import Envelope
from aisp_mcp.jobs import endings
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process.python import module
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog, start
from aisp_mcp.server.dispatch.pending import in_queue
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.system import slurm
from aisp_mcp.system.manifest import manifest_difference


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return forks.run(module("aisp_mcp.front.cli.main", *words), capture_output=True, text=True, timeout=50)


def test_inprocess_runs_in_the_calling_process(jobs: Jobs) -> None:
    done = cli("test", "work", "--label", "near", "--executor", "inprocess", "--json")
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["result"]["text"]) == ("ok", "near")
    assert answer["result"]["tmp"] == os.environ.get("TMPDIR", "")  # a worker would have a folder of its own
    assert jobs.get(answer["job"]["job_id"]).state is JobState.SUCCEEDED


def test_inprocess_returns_when_the_job_has_ended(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")
    answer = endings.failure("aisp_test_end", "j", "CRASHED", "it fell", None)
    job = jobs.submit("aisp_test_end", {}, timeout_s=60, work=lambda _: answer)
    assert (job.state, job.reason) == (JobState.FAILED, "CRASHED: it fell")


def test_inprocess_keeps_a_limit_that_the_call_names(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")

    def work(_: Job) -> str:
        threading.Event().wait(40)
        return endings.failure("aisp_test_end", "j", "CRASHED", "nothing ended it", None)

    job = jobs.submit("aisp_test_end", {"timeout_s": 0.05}, timeout_s=0.05, work=work)
    assert (job.state, job.reason) == (JobState.FAILED, "TIMEOUT: aisp_test_end took longer than 0.05 s.")


def test_inprocess_tells_what_a_job_waits_for(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")
    told = []

    def tell(job: Job) -> None:
        waits = in_queue(job)
        told.append(waits and waits.message)
        jobs.cancel(job.id)

    def work(_: Job) -> str:
        jobs.submit("aisp_test_end", {}, timeout_s=60, resources=["cpu"], work=lambda _: "", tell=tell)
        return endings.failure("aisp_test_end", "j", "CRASHED", "it fell", None)

    jobs.submit("aisp_test_end", {}, timeout_s=60, resources=["cpu"], work=work)
    assert told == ["queued to measure on the CPU: one job is ahead"]


def test_an_unknown_executor_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_EXECUTOR", "cloud")
    done = cli("test", "work", "--json")
    assert json.loads(done.stdout)["error"]["code"] == "BAD_EXECUTOR"


def test_one_call_goes_to_slurm_and_others_stay(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "PartitionName=main Default=YES MaxTime=UNLIMITED State=UP TotalNodes=3"
    stand_in(tmp_path, "scontrol", f"echo '{line}'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ctx = Context(settings=replace(Settings.from_env(), tool_modules=""))
    load_catalog(ctx.settings)
    call = {"tool": "aisp_hw_disk", "args": {"dry_run": True}}
    here = start("aisp_call_tool", call, ctx)
    there = start("aisp_call_tool", {**call, "slurm": {"nodes": 3, "account": "lab", "time": "30"}}, ctx)
    assert isinstance(here, Envelope)
    assert isinstance(there, Envelope)
    assert "sbatch" not in here.result["argv"]
    lines = there.result["details"]["script"].splitlines()
    assert {"#SBATCH --nodes=3", "#SBATCH --account=lab", "#SBATCH --time=0-00:30:00"} <= set(lines)
    wrong = start("aisp_call_tool", {**call, "slurm": {"node": 3}}, ctx)
    assert isinstance(wrong, Envelope)
    assert wrong.error is not None
    assert wrong.error.code == "BAD_PLACEMENT"


def test_submitting_a_script_is_asked_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "scontrol", "echo 'PartitionName=main Default=YES MaxTime=10 State=UP TotalNodes=3'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ctx = Context(settings=replace(Settings.from_env(), tool_modules=""))
    load_catalog(ctx.settings)
    args = {"command": ["train.py"], "nodes": 2, "gpus": 0, "minutes": 10, "submit": True}
    answer = start("aisp_cluster_slurm", args, ctx)
    assert isinstance(answer, Envelope)
    assert answer.confirm is not None
    assert ctx.store.list_jobs()[0] == []
    over = start("aisp_cluster_slurm", {**args, "minutes": 11}, ctx)
    assert isinstance(over, Envelope)
    assert over.error is not None
    assert over.error.code == "BEYOND_PARTITION"


def test_an_allocation_is_part_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm.allocation({}) is None
    stand_in(tmp_path, "scontrol", "echo 'JobId=5 OverSubscribe=NO TresPerNode=gres:gpu:h200:2'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    environ = {"SLURM_JOB_ID": "5", "SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "h200", "SLURM_MEM_PER_NODE": "2"}
    first = slurm.allocation(environ)
    assert first is not None
    assert (first["exclusive"], first["gres"], first["memory_bytes"]) == (True, "gres:gpu:h200:2", 2 << 20)
    second = slurm.allocation({**environ, "SLURM_JOB_ID": "6", "SLURMD_NODENAME": "n2"})
    assert manifest_difference({"cluster": first}, {"cluster": second}) == ["cluster.node: n1 → n2"]


def stand_in(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(stat.S_IRWXU)


def test_a_killed_inprocess_job_gives_its_turn_back(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_PARALLEL_JOBS", "1")
    words = ["aisp_mcp.front.cli.main", "test", "work", "--executor", "inprocess", "--gate", str(tmp_path / "never")]
    children = [forks.Popen(module(*words), stdout=subprocess.DEVNULL) for _ in range(2)]
    until(lambda: len(jobs.store.queue.owned()) == 2)
    held = [row["id"] for row in jobs.store.queue.owned()]
    for child in children:
        child.kill()
        child.wait()
    done = cli("test", "work", "--executor", "inprocess", "--json")
    assert json.loads(done.stdout)["status"] == "ok"
    assert [job.state for job in jobs.store.jobs(held)] == [JobState.LOST, JobState.LOST]
