"""The Slurm allocation that this process runs in, from its variables and one query to the controller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.system.command import ask

_QUERY_S = 5.0


def allocation(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Node, partition, GRES, CPUs and memory of this allocation; None outside of one. Memory in bytes.

    exclusive: other jobs cannot run on its nodes; None if the controller does not report it. Job ids are left out: they
    differ between any two runs.
    """
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    shown = _shown(job)
    memory = _number(environ.get("SLURM_MEM_PER_NODE"))
    return {
        "scheduler": "slurm",
        "node": environ.get("SLURMD_NODENAME"),
        "nodes": _number(environ.get("SLURM_JOB_NUM_NODES")),
        "partition": environ.get("SLURM_JOB_PARTITION"),
        "cpus_on_node": _number(environ.get("SLURM_CPUS_ON_NODE")),
        "memory_bytes": None if memory is None else memory << 20,
        "gpus_on_node": _number(environ.get("SLURM_GPUS_ON_NODE")),
        "gres": shown.get("TresPerNode") or shown.get("TRES"),
        "exclusive": {"NO": True, "OK": False, "YES": False, "USER": False}.get(shown.get("OverSubscribe", "")),
    }


def other_nodes(count: int, environ: Mapping[str, str] = os.environ) -> tuple[list[tuple[str, list[str]]], str]:
    """The other nodes of this allocation, `count` nodes in all: by name, the command prefix that starts a program there
    with all CPUs of the job; and this node's address. Raises Unavailable NO_ALLOCATION if there are fewer, or if this
    process is on none of them.
    """
    listed = ask(["scontrol", "show", "hostnames", environ.get("SLURM_JOB_NODELIST", "")], _QUERY_S).out.split()
    here = environ.get("SLURMD_NODENAME", "")
    cpus = dict(zip(listed, _each(environ.get("SLURM_JOB_CPUS_PER_NODE", "")), strict=False))
    names = [name for name in listed if name != here][: count - 1]
    if here not in listed or len(names) < count - 1:
        message = f"This process is on no node of a Slurm job with {count} nodes; it found {len(listed)}."
        raise Unavailable("NO_ALLOCATION", message, "aisp bench run --executor slurm --nodes 2 requests them.")
    step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mem=0", "--quiet"]
    commands = [(name, [*step, f"--cpus-per-task={cpus.get(name, 1)}", f"--nodelist={name}"]) for name in names]
    shown = ask(["scontrol", "show", "node", "-o", here], _QUERY_S).out
    return commands, next(iter(re.findall(r"\bNodeAddr=(\S+)", shown)), here)


def _each(text: str) -> Iterator[int]:
    """Numbers of a list such as 8(x2),4."""
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        yield from [int(number)] * int(times or 1)


def _shown(job: str) -> dict[str, str]:
    """Words of `scontrol show job`; empty if it does not answer."""
    answer = ask(["scontrol", "show", "job", "-o", job], _QUERY_S)
    return dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", answer.out)) if answer.code == 0 else {}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
