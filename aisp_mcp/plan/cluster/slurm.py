"""A Slurm batch script: one torchrun per node, signals forwarded in time, nothing shared with other jobs."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.plan.cluster.launch import Job, srun_words
from aisp_mcp.records import Record

NOTICE_S = 60


class Request(Record):
    """Resources requested of the cluster."""

    partition: str | None = None
    account: str | None = None
    minutes: int
    cpus: int | None = Field(default=None, description="Per node; None leaves the cluster's default.")
    exclusive: bool = True


def script(job: Job, request: Request, environment: Sequence[tuple[str, str]] = ()) -> str:
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
