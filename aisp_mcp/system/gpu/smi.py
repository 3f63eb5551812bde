"""nvidia-smi: the topology matrix, which NVML has no call for, and a fallback if NVML fails."""

from __future__ import annotations

import re
import shutil

from aisp_mcp.system.command import ask
from aisp_mcp.system.records import Problem

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def path() -> str | None:
    """nvidia-smi on PATH, or None."""
    return shutil.which("nvidia-smi")


def topology(timeout_s: float = 10.0) -> tuple[str, Problem | None]:
    """The text of `nvidia-smi topo -m` without colours, or the reason why there is none."""
    program = path()
    if program is None:
        return "", Problem(
            code="NOT_INSTALLED",
            message="nvidia-smi was not found on PATH.",
            hint="It comes with the NVIDIA driver (Debian and Ubuntu: nvidia-utils).",
        )
    answer = ask([program, "topo", "-m"], timeout_s)
    if answer.timed_out:
        return "", Problem(code="DRIVER_HUNG", message=f"nvidia-smi topo -m: {answer.err}.", hint=_HUNG)
    if answer.code != 0:
        lines = (answer.err or answer.out).strip().splitlines()
        return "", Problem(
            code="SMI_FAILED", message=f"nvidia-smi topo -m failed: {lines[0] if lines else answer.code}"
        )
    return _ANSI.sub("", answer.out), None


_HUNG = "A process in state D usually holds the driver: see dmesg for Xid messages."


def parse_topology(raw: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The matrix (row to column to link) and the legends of `nvidia-smi topo -m` (links, and names of NICs).

    Columns are separated by tabs; CPU Affinity, NUMA Affinity and GPU NUMA ID are columns too.
    """
    matrix: dict[str, dict[str, str]] = {}
    legend: dict[str, str] = {}
    header: list[str] = []
    for line in raw.splitlines():
        match = re.match(r"^\s{2}(\S+?)(?:\s+=|:)\s+(.+)$", line)
        if match:
            legend[match[1]] = match[2]
        elif not header and "GPU0" in line:
            header = [cell.strip() for cell in line.split("\t")][1:]
        elif header and "\t" in line:  # the legends have no tabs
            cells = [cell.strip() for cell in line.split("\t")]
            matrix[cells[0]] = {c: v for c, v in zip(header, cells[1:], strict=False) if c and v}
    return matrix, legend


def query(timeout_s: float = 15.0) -> str | None:
    """The text of `nvidia-smi -q`, or None if it is missing or does not answer."""
    program = path()
    if program is None:
        return None
    answer = ask([program, "-q"], timeout_s)
    return answer.out if answer.code == 0 else None
