"""Compare a request with the partition's limits. By default, sbatch accepts jobs that can never start, such as one with
a time limit above the partition's; they would stay pending for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.jobs.executors.placement import Placement, read_minutes
from aisp_mcp.jobs.executors.slurm import INSTALL
from aisp_mcp.jobs.executors.slurm_text import read_fields
from aisp_mcp.system.command import ask

QUERY_S = 5.0
DEFAULT_ARRAY_SIZE = 1001  # indices are below it


def check_limits(request: Placement) -> None:
    """Refuse requests that no named partition can run. If the controller does not answer, nothing is checked: the job
    will wait.

    Raises UsageError BEYOND_PARTITION and Unavailable NO_SLURM.
    """
    answer = ask(["scontrol", "show", "partition", "-o"], QUERY_S)
    if answer.code is None and not answer.timed_out:
        raise Unavailable("NO_SLURM", f"scontrol cannot be started: {answer.err[:200]}.", INSTALL)
    known = {fields["PartitionName"]: fields for fields in map(read_fields, answer.out.splitlines()) if fields}
    if answer.code != 0 or not known:
        return
    default = [name for name, fields in known.items() if fields.get("Default") == "YES"]
    names = request.partition.split(",") if request.partition else default
    problems = [_problem(name, known, request) for name in names] or ["there is no default partition"]
    if all(problems):
        raise UsageError(
            "BEYOND_PARTITION",
            f"This cannot run: {'; '.join(map(str, problems))}.",
            f"Partitions: {', '.join(sorted(known))}. `sinfo` shows their limits.",
        )


def max_array_size() -> int:
    """Number of tasks an array may have by the controller's configuration; Slurm's default if it is unknown."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask(["scontrol", "show", "config"], QUERY_S).out, re.MULTILINE)
    return max(int(match[1]), 1) if match else DEFAULT_ARRAY_SIZE


def _problem(name: str, partitions: Mapping[str, Mapping[str, str]], request: Placement) -> str | None:
    """The first reason why a partition can never run this, as a clause."""
    if name not in partitions:
        return f"no partition is named {name}"
    return next(_problems(name, partitions[name], request), None)


def _problems(name: str, fields: Mapping[str, str], request: Placement) -> Iterator[str]:
    if fields.get("State", "UP") != "UP":
        yield f"partition {name} is {fields['State']}"
    longest = fields.get("MaxTime", "UNLIMITED")
    if longest != "UNLIMITED" and request.minutes > read_minutes(longest):
        yield f"{request.minutes} min is above the limit of partition {name}, {longest}"
    for key, verb in (("MaxNodes", "allows"), ("TotalNodes", "has")):
        count = fields.get(key, "")
        if count.isdigit() and request.nodes > int(count):
            yield f"partition {name} {verb} {count} nodes, not {request.nodes}"
    allowed = fields.get("AllowAccounts", "ALL")
    if allowed != "ALL" and request.account and request.account not in allowed.split(","):
        yield f"partition {name} does not take account {request.account}"
    if request.gpus:
        answer = ask(["sinfo", "-h", "-p", name, "-o", "%G"], QUERY_S)
        most = max(map(gpus_of, answer.out.splitlines()), default=0)
        if answer.code == 0 and request.gpus > most:
            yield f"nodes of partition {name} have at most {most} GPUs, not {request.gpus} ({answer.out.strip()[:100]})"


def gpus_of(gres: str) -> int:
    """Number of GPUs in a GRES such as gpu:h200:2(S:0-1),gpu:a100:4,nvme:1."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = [part.split(":") for part in plain.split(",") if part.split(":")[0] == "gpu"]
    return sum(int(parts[-1]) if parts[-1].isdigit() else 1 for parts in counts)
