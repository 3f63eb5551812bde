"""The number of ranks of a target, read from its file without running it."""

from __future__ import annotations

import os
from pathlib import Path

from aisp_mcp.bench import sizes
from aisp_mcp.judge import source_facts

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
