"""Ranks of a target: how many, read from its file without running it, and the environment that a caller may give them.

Variables that steer a collective library may be given; they are disclosed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.bench import sizes
from aisp_mcp.errors import UsageError
from aisp_mcp.judge import source_facts
from aisp_mcp.judge.records.verdict import Flag

MAX_RANKS = 64
SIZE = "ranks"  # the size that replaces the number


def declared(baseline: Path) -> int:
    """Number of ranks in the specification; 1 for an ordinary one."""
    ranks = source_facts.read(baseline.read_bytes(), baseline.suffix, baseline=True).needs.get(SIZE, 1)
    return ranks if isinstance(ranks, int) else 1


def ranks(baseline: Path, size: str) -> int:
    """Number of processes of each program."""
    own = declared(baseline)
    count = sizes.read(size).values.get(SIZE, own)
    return count if own > 1 and isinstance(count, int) else own


def lacks(baseline: Path, size: str, variables: bool = False, nodes: int = 1) -> str:
    """The missing condition for so many ranks of the target here; empty if there is none.

    variables: true if some are given, which only ranks may have. nodes: over which ranks are spread.
    """
    own, cores = declared(baseline), len(os.sched_getaffinity(0))
    count = sizes.read(size).values.get(SIZE, own)
    if own == 1:
        if variables:
            return "several ranks, for variables that are given to ranks"
        return "" if count in (1, own) else f"one process, not {count} ranks"
    if not isinstance(count, int) or not 2 <= count <= MAX_RANKS:
        return f"2 to {MAX_RANKS} ranks, not {count}"
    if count % nodes:
        return f"as many ranks on each of {nodes} nodes, not {count} in all"
    return lacks_cores(count // nodes, cores)


def lacks_cores(ranks: int, cores: int) -> str:
    """The missing condition for so many ranks on a node; empty if there is none."""
    return f"{ranks} cores for {ranks} ranks, found {cores}" if cores < ranks else ""


def unmeasured(goal: str, ranks: int, device: str, nodes: int = 1) -> str:
    """The missing condition for measuring this goal over ranks; empty if there is none.

    A group's rounds count the time of all its processes and their host memory; counters of devices are those of one.
    """
    if nodes > 1 and (goal != "speed" or device != "cpu"):
        what = "NCCL" if device != "cpu" else f"the goal {goal}"
        return f"one node: {what} over {nodes} nodes is not measured"
    if ranks == 1 or goal not in ("cold", "memory", "energy") or (goal != "cold" and device != "cuda"):
        return ""
    what = {"cold": "the first call", "memory": "device memory", "energy": "the energy"}[goal]
    return f"one process: {what} of {ranks} ranks is not measured"


PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
NAMES = ("OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG")
FIXED = (  # set by the harness: the process group of a program, and its loopback
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
)
MAX_CHARS = 200
_VARIABLE = re.compile(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[\x20-\x7e]*)")
Variables = tuple[tuple[str, str], ...]


def read(texts: Sequence[str]) -> Variables:
    """Names and values of texts such as NCCL_ALGO=Ring, the last one of a name. Raises UsageError BAD_RANK_ENV."""
    return tuple(sorted(dict(map(_assignment, texts)).items()))


def _assignment(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None or len(match["value"]) > MAX_CHARS:
        raise _bad(f"{text[:60]!r} is not a variable with a value.", "Write NAME=VALUE, such as NCCL_ALGO=Ring.")
    name, value = match["name"], match["value"]
    if name in FIXED:
        raise _bad(f"The harness sets {name}: each program has its own ranks and loopback.", "Leave it out.")
    if name not in NAMES and not name.startswith(PREFIXES):
        some = ", ".join([*(f"{prefix}*" for prefix in PREFIXES), *NAMES])
        hint = f"Ranks may be given {some}. Set others in the program."
        raise _bad(f"Ranks see no variable {name[:60]} of their caller.", hint)
    if name == "OMP_NUM_THREADS" and not (value.isdecimal() and 0 < int(value) < 1000):
        raise _bad(f"OMP_NUM_THREADS={value[:20]} is not a number of threads.", "OMP_NUM_THREADS=1")
    return name, value


def _bad(message: str, hint: str) -> UsageError:
    return UsageError("BAD_RANK_ENV", message, hint)


def note(variables: Variables) -> list[Flag]:
    """The flag that discloses them with a verdict, if there are any."""
    if not variables:
        return []
    assignments = ", ".join(f"{name}={value}" for name, value in variables)
    message = f"The ranks of baseline and candidate ran with {assignments}."
    return [Flag(code="rank_env", severity="note", message=message, evidence=dict(variables))]
