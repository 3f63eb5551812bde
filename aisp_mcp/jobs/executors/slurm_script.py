"""The batch script of a job: the requested resources and one command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.process.python import module

NAME, OUTPUT = "job.sbatch", "slurm.out"
PREFIX = "aisp-"


def job_name(job_id: str) -> str:
    """Name of a job in Slurm: our id, which is unique."""
    return f"{PREFIX}{job_id}"


def slurm_time(minutes: int) -> str:
    """Minutes as days-hours:minutes:seconds."""
    days, rest = divmod(minutes, 1440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def name_of(row: Any) -> str:
    """Name in Slurm of the submission that a row belongs to: all tasks of an array share it."""
    return job_name(array_of(row).get("id") or row["id"])


def array_of(row: Any) -> dict[str, Any]:
    """Array of a row (id, index, folder and digests of its targets); empty for a single job."""
    return json.loads(row["placement"]).get("array") or {}


def handle_of(row: Any, submission: str) -> str:
    """Slurm's id of a row's task within a submission."""
    array = array_of(row)
    return f"{submission}_{array['index']}" if array else submission


def output_of(row: Any) -> Path:
    """File with the batch script's own output."""
    array = array_of(row)
    return Path(array["folder"]) / f"{OUTPUT}.{array['index']}" if array else Path(row["run_dir"]) / OUTPUT


def script(job_id: str, folder: str, python: str, request: dict[str, Any], tasks: Sequence[int] = ()) -> str:
    """The text for sbatch. request: a Placement as a dict; tasks: indices of an array; folder: then of all tasks.

    `singleton` keeps a second submission under this name from starting while the first one lives. Tasks of an array
    share their name; a second submission of one finds the first one's claim.
    """
    output = str(Path(folder) / OUTPUT).replace("%", "%%") + (".%a" if tasks else "")
    options = [
        f"job-name={job_name(job_id)}",
        f"comment=aisp:{job_id}",
        f"nodes={request['nodes']}",
        "ntasks-per-node=1",
        f"time={slurm_time(request['minutes'])}",
        f"output={json.dumps(output, ensure_ascii=False)}",
        "open-mode=append",
        f"array={','.join(map(str, tasks))}" if tasks else "dependency=singleton",
    ]
    options += [f"gpus-per-node={request['gpus']}"] * bool(request["gpus"])
    options += [f"{name}={request[name]}" for name in ("partition", "account") if request[name]]
    options += ["exclusive"] * bool(request["exclusive"])
    command = shlex.join(module("aisp_mcp.jobs.node", folder, python=python))
    return "\n".join(["#!/bin/bash", *(f"#SBATCH --{option}" for option in options), "", f"exec {command}", ""])
