"""One-line summaries of machine records."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system import disk, memory
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.records.device import Finding, Gpu

GIB = 1024**3


def watched(*paths: Path) -> list[Path]:
    """The folders whose file systems matter: root, temporary folder, shared memory and the given ones."""
    return [Path("/"), Path(tempfile.gettempdir()), Path("/dev/shm"), *(p.absolute() for p in paths)]


def gpu(g: Gpu) -> str:
    """`0 NVIDIA H200, 139.8 GiB (0.6 used), 31 C, 81 of 700 W, 450 of 1980 MHz, P0`; absent values are left out."""
    if g.problem is not None and g.name is None:
        return f"{g.index} {g.problem.code}: {g.problem.message}"
    parts = [f"{g.index} {g.name or 'unnamed GPU'}"]
    total, used = g.memory.total_bytes, g.memory.used_bytes
    if total is not None:
        parts.append(f"{total / GIB:.1f} GiB" + (f" ({used / GIB:.1f} used)" if used is not None else ""))
    if g.activity.gpu_percent is not None:
        parts.append(f"{g.activity.gpu_percent} % busy")
    if g.thermal.gpu_c is not None:
        parts.append(f"{g.thermal.gpu_c} C")
    parts += _of(g.power.draw_w, g.power.limit_w, "W")
    parts += _of(g.clocks.sm_mhz, g.clocks.sm_max_mhz, "MHz")
    if g.activity.performance_state:
        parts.append(g.activity.performance_state)
    return ", ".join(parts)


def _of(now: float | None, limit: float | None, unit: str) -> list[str]:
    if now is None:
        return []
    return [f"{now:.0f} of {limit:.0f} {unit}" if limit else f"{now:.0f} {unit}"]


def host(s: Snapshot) -> str:
    """Processor, memory, and the container or virtual machine around them."""
    total = s.memory.total_bytes
    parts = [
        f"{s.cpu.model or s.cpu.architecture}, {s.cpu.usable or s.cpu.logical} CPUs",
        f"{total / GIB:.1f} GiB" if total is not None else "memory unknown",
        s.surroundings.distribution or "Linux",
        f"kernel {s.surroundings.kernel}",
    ]
    if s.surroundings.container != "none seen":
        parts.append(f"container: {s.surroundings.container}")
    if s.surroundings.hypervisor != "none seen":
        parts.append(f"hypervisor: {s.surroundings.hypervisor}")
    return ", ".join(parts)


def summary(s: Snapshot, findings: list[Finding]) -> str:
    """`No GPU; torch 2.13.0+cpu; 0 critical, 1 warning, 4 notes.`"""
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("critical", "warning", "note")}
    cards = f"{len(s.gpus.gpus)} GPU(s), driver {s.gpus.driver}" if s.gpus.gpus else "No usable GPU"
    torch = s.software.packages.get("torch")
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{cards}; torch {torch or 'not installed'}; findings: {words}."


def status(home: Path) -> dict[str, Any]:
    """The fields of the status line. Healthy: no driver problem, and some memory and disk left."""
    reading = nvml.read(deadline_s=0.5, brief=True)
    problem = reading.problem.code if reading.problem else None
    host_memory, load = memory.read(), memory.pressure().load_1m
    disks = disk.read([home.absolute()])
    free = disks[0].free_bytes if disks else None
    available = host_memory.available_bytes
    sick = problem not in (None, "NO_DRIVER", "NO_DEVICES") or any(g.problem for g in reading.gpus)
    low = (free is not None and free < GIB) or (available is not None and available < GIB // 2)
    cards = f"{len(reading.gpus)} GPU" if problem is None else (problem if sick else "no GPU")
    line = (
        f"{cards} | load {load if load is not None else 'unknown'} | memory {_gib(available)} free"
        f" | disk {_gib(free)} free"
    )
    return {
        "healthy": not sick and not low,
        "line": line,
        "gpus": len(reading.gpus),
        "gpu_problem": problem,
        "load_1m": load,
        "memory_available_bytes": available,
        "disk_free_bytes": free,
    }


def _gib(count: int | None) -> str:
    return "unknown" if count is None else f"{count / GIB:.1f} GiB"
