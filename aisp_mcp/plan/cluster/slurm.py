"""Slurm: a batch script with one torchrun per node, and a script that runs inside an allocation.

Signals are forwarded in time, and nothing is shared with other jobs.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence

from pydantic import Field

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.plan.cluster import launch
from aisp_mcp.plan.cluster.launch import LaunchJob, srun_words
from aisp_mcp.records import Record
from aisp_mcp.system.command import ask

NOTICE_S = 60


class BatchResources(Record):
    """Resources requested of the cluster."""

    partition: str | None = None
    account: str | None = None
    minutes: int
    cpus: int | None = Field(default=None, description="Per node; None leaves the cluster's default.")
    exclusive: bool = True


def batch_script(job: LaunchJob, request: BatchResources, environment: Sequence[tuple[str, str]] = ()) -> str:
    """The text of a file for sbatch. Time is written as days-hours:minutes:seconds."""
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={job.name}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        *[f"#SBATCH --gpus-per-node={job.gpus}"] * bool(job.gpus),
        f"#SBATCH --time={_time(request.minutes)}",
        f"#SBATCH --signal=B:TERM@{NOTICE_S}",
        "#SBATCH --output=%x-%j.log",
    ]
    lines += [f"#SBATCH --partition={request.partition}"] * (request.partition is not None)
    lines += [f"#SBATCH --account={request.account}"] * (request.account is not None)
    lines += [f"#SBATCH --cpus-per-task={request.cpus}"] * (request.cpus is not None)
    lines += ["#SBATCH --exclusive"] * request.exclusive
    lines += ["", "set -euo pipefail"]
    lines += [f"export {name}={value}" for name, value in environment]
    # In the background, so that the shell can take the signal and hand it to the step.
    lines += ['trap \'kill -TERM "$step"; wait "$step"\' TERM', f"{srun_words(job)} &", "step=$!", 'wait "$step"']
    return "\n".join(lines) + "\n"


def _time(minutes: int) -> str:
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


_QUERY_S = 20.0


class ClusterRan(Record):
    """A script that succeeded. Its output is the job's log."""

    nodes: list[str]
    command: str
    seconds: float


def check_partition(variables: Mapping[str, str], minutes: int) -> None:
    """Compare a request with the partition's limits. Raises UsageError BEYOND_PARTITION, Unavailable NO_SLURM."""
    from aisp_mcp.jobs.executors import slurm
    from aisp_mcp.jobs.executors.placement import placement

    slurm.check_limits(placement(variables, 60.0 * minutes, exclusive=True))


def run_script(command: list[str], timeout_s: float) -> ClusterRan:
    """Run a script on every node of this allocation, one torchrun per node. Raises Unavailable, ProcessError."""
    allocation = os.environ.get("SLURM_JOB_NODELIST")
    if "SLURM_JOB_ID" not in os.environ or not allocation:
        hint = "Add --executor slurm, or use aisp_cluster_slurm with submit."
        raise Unavailable("NO_ALLOCATION", "This runs inside a Slurm allocation only.", hint)
    nodes = _scontrol("hostnames", allocation).split()
    gpus = os.environ.get("SLURM_GPUS_PER_NODE", "0").rpartition(":")[2]  # "2", or with a type, "h200:2"
    job = launch.of_command(command, len(nodes), int(gpus))
    line = launch.srun_words(job, head=_address(nodes[0]))
    # The job's own TMPDIR is on the first node only.
    env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    began = time.monotonic()
    print(f"+ {line}", flush=True)
    code = subprocess.run(["bash", "-c", line], env=env, timeout=timeout_s, check=False).returncode
    if code:
        raise ProcessError("CRASHED", f"`{line[:150]}` ended with code {code}.", "The job's log contains its output.")
    return ClusterRan(nodes=nodes, command=line, seconds=time.monotonic() - began)


def _scontrol(*words: str) -> str:
    """The answer of `scontrol show WORDS`. Raises Unavailable NO_SLURM."""
    answer = ask(["scontrol", "show", *words], _QUERY_S)
    if answer.code != 0:
        raise Unavailable("NO_SLURM", f"scontrol does not answer: {answer.err[:200]}.", "Ask the cluster's operators.")
    return answer.out


def _address(node: str) -> str:
    """The address by which Slurm reaches a node; its name may not resolve on the others."""
    match = re.search(r"\bNodeAddr=(\S+)", _scontrol("node", node))
    return match[1] if match else node
