"""Processors, caches, frequency and NUMA nodes from /proc and /sys."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from aisp_mcp.system.files import ROOT, as_int, count_cpus, fields, names, number, text
from aisp_mcp.system.records import Cache, Cpu, NumaNode

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
# The extensions that decide which kernels a library picks, in the kernel's spelling (x86 flags, Arm features).
_ISA = (
    *("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimddp", "sve", "sve2", "bf16", "i8mm", "svebf16", "sme", "sme2"),
)


def read(root: Path = ROOT) -> Cpu:
    """The processors of this system as the kernel shows them (in a container: the host's)."""
    blocks = (text(root, "/proc/cpuinfo") or "").split("\n\n")
    first = fields(blocks[0])
    logical = count_cpus(text(root, f"{_CPU}/online")) or len([b for b in blocks if b.startswith("processor")]) or None
    flags = set((first.get("flags") or first.get("Features") or "").split())
    return Cpu(
        model=first.get("model name") or first.get("CPU part"),
        architecture=platform.machine(),
        logical=logical,
        physical=_physical(root, blocks),
        sockets=len({fields(b).get("physical id") for b in blocks if "physical id" in b}) or None,
        usable=len(os.sched_getaffinity(0)) if root == ROOT else None,
        smt=_smt(root),
        isa=[name for name in _ISA if name in flags],
        caches=_caches(root),
        governor=governor(root),
        frequency_mhz=_frequency(first),
        frequency_max_mhz=_khz(number(root, f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq")),
    )


def governor(root: Path = ROOT) -> str:
    """The governors in use, joined by commas; "unknown" if the kernel has no cpufreq (most virtual machines)."""
    governors = {text(root, f"{_CPU}/{cpu}/cpufreq/scaling_governor") for cpu in _cpus(root)}
    return ",".join(sorted(g for g in governors if g)) or "unknown"


def _cpus(root: Path) -> list[str]:
    return [name for name in names(root, _CPU) if name.startswith("cpu") and name[3:].isdigit()]


def _smt(root: Path) -> str:
    active = number(root, f"{_CPU}/smt/active")
    control = text(root, f"{_CPU}/smt/control")
    if active is None and control is None:
        return "unknown"
    return "on" if active == 1 else "off"


def _physical(root: Path, blocks: list[str]) -> int | None:
    cores = {(f.get("physical id"), f.get("core id")) for f in map(fields, blocks) if "core id" in f}
    if cores:
        return len(cores)
    siblings = {text(root, f"{_CPU}/{cpu}/topology/thread_siblings_list") for cpu in _cpus(root)} - {None}
    return len(siblings) or None


def _frequency(first: dict[str, str]) -> float | None:
    try:
        return float(first["cpu MHz"])
    except (KeyError, ValueError):
        return None


def _khz(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _caches(root: Path) -> list[Cache]:
    caches = []
    for index in names(root, f"{_CPU}/cpu0/cache"):
        folder = f"{_CPU}/cpu0/cache/{index}"
        level = number(root, f"{folder}/level")
        if level is None:
            continue
        kind = (text(root, f"{folder}/type") or "unknown").lower()
        shared = count_cpus(text(root, f"{folder}/shared_cpu_list"))
        caches.append(Cache(level=level, kind=kind, size_bytes=size(text(root, f"{folder}/size")), shared_by=shared))
    return caches


def size(raw: str | None) -> int | None:
    """Bytes of `32K`, `1024K`, `96M` or a bare number."""
    if not raw:
        return None
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(raw[-1].upper(), 1)
    count = as_int(raw[:-1] if factor > 1 else raw)
    return None if count is None else count * factor


def numa(root: Path = ROOT) -> list[NumaNode]:
    """The NUMA nodes with their processors, memory and distances; empty if the kernel has no node folder."""
    nodes = []
    for name in names(root, _NODE):
        if not (name.startswith("node") and name[4:].isdigit()):
            continue
        info = text(root, f"{_NODE}/{name}/meminfo") or ""
        nodes.append(
            NumaNode(
                node=int(name[4:]),
                cpus=text(root, f"{_NODE}/{name}/cpulist") or "",
                memory_bytes=_node_kb(info, "MemTotal"),
                free_bytes=_node_kb(info, "MemFree"),
                distances=[int(d) for d in (text(root, f"{_NODE}/{name}/distance") or "").split() if d.isdigit()],
            )
        )
    return sorted(nodes, key=lambda node: node.node)


def _node_kb(info: str, key: str) -> int | None:
    for line in info.splitlines():
        if f" {key}:" in line:
            kb = as_int(line.split(":")[1].split()[0])
            return None if kb is None else kb * 1024
    return None


def load_words() -> str:
    """The load as the reason why noise hid a difference: `: load 10 on 2 cores`; empty with free cores."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f": load {load:.0f} on {cores} core{'' if cores == 1 else 's'}" if load > cores else ""
