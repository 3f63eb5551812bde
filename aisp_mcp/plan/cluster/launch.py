"""Commands that start a script on several GPUs or nodes, as text for a shell or an API server."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Record

PORT = 29_500
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")
HEAD = '"$MASTER_ADDR"'
RANK = '"$NODE_RANK"'


class LaunchJob(Record):
    """One script on nodes x gpus."""

    script: str
    args: list[str] = Field(default_factory=list)
    nodes: int = 1
    gpus: int = Field(default=1, description="Per node; 0: one process per node, without a GPU.")
    name: str = "train"
    image: str = "pytorch/pytorch:latest"

    @property
    def title(self) -> str:
        """The script, or the module after -m."""
        return self.args[0] if self.script == "-m" and self.args else self.script


def of_command(command: Sequence[str], nodes: int, gpus: int) -> LaunchJob:
    """A job from script and arguments, named after the script: lower case and dashes, as DNS labels must be.

    A leading interpreter is dropped, because torchrun and accelerate start it themselves. `-m module` is passed on to
    them. Raises UsageError BAD_COMMAND.
    """
    command = _without_python(command)
    stem = PurePath(command[1] if command[0] == "-m" else command[0]).stem.lower()
    name = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:50].strip("-")
    name = name if name[:1].isalpha() else f"job-{name}".strip("-")
    return LaunchJob(script=command[0], args=list(command[1:]), nodes=nodes, gpus=gpus, name=name)


def _without_python(command: Sequence[str]) -> Sequence[str]:
    if not _PYTHON.fullmatch(PurePath(command[0]).name):
        return command
    rest = list(command[1:])
    while rest and rest[0] in ("-u", "-O", "-B"):
        rest.pop(0)
    if not rest or (rest[0].startswith("-") and (rest[0] != "-m" or len(rest) < 2)):
        raise UsageError(
            "BAD_COMMAND",
            f"`{shlex.join(command)[:80]}` does not name a script that a launcher can start.",
            "Give a script or a module: aisp launch plan -- train.py, or -- python -m package.train.",
        )
    return rest


class Launch(Record):
    """text: a shell command, or a manifest. run_on: where to start it, and how often."""

    launcher: str
    text: str
    run_on: str
    needs: dict[str, str] = Field(description="Variable that must be set, and to what.")


def torchrun_words(job: LaunchJob, rank: str, head: str) -> str:
    """torchrun with static rendezvous: ranks follow node order, which c10d does not guarantee."""
    if job.nodes == 1:
        where = f"--standalone --nproc-per-node={job.gpus or 1}"
    else:
        where = (
            f"--nnodes={job.nodes} --nproc-per-node={job.gpus or 1} --node-rank={rank}"
            f" --master-addr={head} --master-port={PORT}"
        )
    return f"torchrun {where} {_script(job)}"


def torchrun(job: LaunchJob) -> Launch:
    """The same line on every node."""
    return Launch(
        launcher="torchrun",
        text=torchrun_words(job, RANK, HEAD),
        run_on="this node" if job.nodes == 1 else f"each of the {job.nodes} nodes",
        needs={} if job.nodes == 1 else _NEEDS,
    )


def srun(job: LaunchJob) -> Launch:
    """One torchrun per node inside an allocation; the task's number is the node's rank."""
    return Launch(
        launcher="srun",
        text=srun_words(job),
        run_on="the login node; inside an allocation the same line uses it",
        needs={},
    )


def srun_words(job: LaunchJob, head: str | None = None) -> str:
    """The srun line. head: address of the first node; without it, the step asks Slurm.

    It uses the address because the name of a node may not resolve on the others.
    """
    first = '"$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
    head = head or rf'"$(scontrol show node {first} | grep -oP "NodeAddr=\K\S+")"'
    inner = torchrun_words(job, '"$SLURM_PROCID"', head)
    words = [
        "srun",
        f"--nodes={job.nodes}",
        f"--ntasks={job.nodes}",
        "--ntasks-per-node=1",
        *[f"--gpus-per-node={job.gpus}"] * bool(job.gpus),
        "--kill-on-bad-exit=1",
    ]
    return f"{' '.join(words)} bash -c {shlex.quote(inner)}"


def accelerate(job: LaunchJob) -> Launch:
    """Hugging Face accelerate, without a configuration file."""
    words = ["accelerate", "launch", f"--num_processes={job.nodes * job.gpus}", f"--num_machines={job.nodes}"]
    if job.nodes * job.gpus > 1:
        words.append("--multi_gpu")
    if job.nodes > 1:
        words += [f"--machine_rank={RANK}", f"--main_process_ip={HEAD}", f"--main_process_port={PORT}"]
    words += ["--mixed_precision=bf16", "--dynamo_backend=no", _script(job)]
    return Launch(
        launcher="accelerate",
        text=" ".join(words),
        run_on="this node" if job.nodes == 1 else f"each of the {job.nodes} nodes",
        needs={} if job.nodes == 1 else _NEEDS,
    )


def kubernetes(job: LaunchJob) -> Launch:
    """An Indexed Job with a headless service, in JSON, which kubectl reads. The completion index is the node's rank."""
    labels = {"app": job.name}
    command = torchrun_words(job, '"$JOB_COMPLETION_INDEX"', f"{job.name}-0.{job.name}")
    container = {
        "name": "main",
        "image": job.image,
        "command": ["bash", "-c", command],
        "resources": {"limits": {"nvidia.com/gpu": job.gpus}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "subdomain": job.name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    spec = {
        "completions": job.nodes,
        "parallelism": job.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    service = {"clusterIP": "None", "selector": labels, "ports": [{"name": "rendezvous", "port": PORT}]}
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": job.name}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name, "labels": labels}, "spec": spec},
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    return Launch(launcher="kubernetes", text=text, run_on="kubectl create -f FILE", needs={})


LAUNCHERS = {"torchrun": torchrun, "srun": srun, "accelerate": accelerate, "kubernetes": kubernetes}
_NEEDS = {"MASTER_ADDR": "host name of the first node", "NODE_RANK": "0 on the first node, 1 on the next"}


def _script(job: LaunchJob) -> str:
    return shlex.join([job.script, *job.args])
