"""Host memory, its kernel settings, pressure and stolen time."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from aisp_mcp.system.files import ROOT, as_int, chosen, fields, number, text
from aisp_mcp.system.records import HostMemory, Pressure

_THP = "/sys/kernel/mm/transparent_hugepage"


def read(root: Path = ROOT) -> HostMemory:
    """Sizes in bytes from /proc/meminfo; settings as the kernel names them."""
    info = fields(text(root, "/proc/meminfo"))
    shm_total, shm_free = _shm(root)
    balancing = text(root, "/proc/sys/kernel/numa_balancing")
    swap_total, swap_free = _kb(info, "SwapTotal"), _kb(info, "SwapFree")
    return HostMemory(
        total_bytes=_kb(info, "MemTotal"),
        available_bytes=_kb(info, "MemAvailable"),
        swap_total_bytes=swap_total,
        swap_used_bytes=None if swap_total is None or swap_free is None else swap_total - swap_free,
        shm_bytes=shm_total,
        shm_free_bytes=shm_free,
        transparent_hugepages=chosen(text(root, f"{_THP}/enabled")),
        thp_defrag=chosen(text(root, f"{_THP}/defrag")),
        numa_balancing="unknown" if balancing is None else ("off" if balancing == "0" else "on"),
        swappiness=number(root, "/proc/sys/vm/swappiness"),
        memlock_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if root == ROOT else None,
        hugepages=as_int(info.get("HugePages_Total")),
    )


def _kb(info: dict[str, str], key: str) -> int | None:
    kb = as_int(info.get(key, "").partition(" ")[0])
    return None if kb is None else kb * 1024


def _shm(root: Path) -> tuple[int | None, int | None]:
    try:
        stat = os.statvfs(root / "dev/shm")
    except OSError:
        return None, None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def pressure(root: Path = ROOT) -> Pressure:
    """Stall shares of the last 10 s in percent, load and stolen time; None if the kernel does not report them."""
    load = text(root, "/proc/loadavg")
    return Pressure(
        cpu_some=stall(root, "cpu", "some"),
        memory_some=stall(root, "memory", "some"),
        memory_full=stall(root, "memory", "full"),
        io_some=stall(root, "io", "some"),
        io_full=stall(root, "io", "full"),
        load_1m=_number(load.split()[0]) if load else None,
        steal_percent=_steal(root),
    )


def stall(root: Path, what: str, kind: str, key: str = "avg10") -> float | None:
    """One number of /proc/pressure/<what>: kind some or full; key avg10 (percent) or total (µs)."""
    for line in (text(root, f"/proc/pressure/{what}") or "").splitlines():
        fields = line.split()
        if fields and fields[0] == kind:
            pairs = dict(w.split("=", 1) for w in fields[1:] if "=" in w)
            return _number(pairs.get(key))
    return None


def _number(raw: str | None) -> float | None:
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None


def cpu_times(root: Path = ROOT) -> list[int] | None:
    """The `cpu` line of /proc/stat in ticks: user nice system idle iowait irq softirq steal guest guest_nice."""
    line = (text(root, "/proc/stat") or "").partition("\n")[0].split()
    if not line or line[0] != "cpu":
        return None
    try:
        return [int(word) for word in line[1:]]
    except ValueError:
        return None


def steal_share(before: list[int] | None, after: list[int] | None) -> float | None:
    """Stolen share of all CPU time between two readings; None without both or without time between them."""
    if before is None or after is None or len(before) < 8 or len(after) < 8:
        return None
    # guest time is already counted in user time
    total = sum(after[:8]) - sum(before[:8])
    return (after[7] - before[7]) / total if total > 0 else None


def _steal(root: Path) -> float | None:
    times = cpu_times(root)
    share = steal_share([0] * 8, times)
    return None if share is None else round(100 * share, 3)
