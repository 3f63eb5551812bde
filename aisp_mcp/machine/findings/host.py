"""Findings about processors, memory, limits, disks and containers."""

from __future__ import annotations

from collections.abc import Iterator

from aisp_mcp.envelope import NextStep
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system.records.device import Finding

GIB = 1024**3
_SHM_SMALL = 1 * GIB  # the default of docker is 64 MiB; NCCL and data loaders with workers need more
_DISK_SMALL = 5 * GIB
_MEMLOCK_SMALL = 64 * 1024**2
_DISK = NextStep(tool="aisp_hw_disk", why="measure this file system")
_HOST = NextStep(tool="aisp_system_full", why="every setting and limit of the host")


def find(s: Snapshot) -> Iterator[Finding]:
    """Findings, most costly first."""
    for rule in (_quota, _steal, _load, _shm, _disks, _frequency, _kernel, _swap, _memlock, _virtual):
        yield from rule(s)


def _quota(s: Snapshot) -> Iterator[Finding]:
    cpus, usable = s.limits.cpus, s.cpu.usable or s.cpu.logical
    if cpus is not None and usable is not None and cpus < usable:
        yield Finding(
            severity="warning",
            code="CPU_QUOTA",
            message=f"The control group allows {cpus:g} CPUs, but {usable} are visible: thread pools oversubscribe.",
            evidence=s.limits.model_dump(exclude_none=True),
            fix=f"Set OMP_NUM_THREADS={max(1, int(cpus))}, or raise the limit (docker --cpus, resources.limits.cpu).",
            next=_HOST,
        )
    memory = s.limits.memory_bytes
    if memory is not None and s.memory.total_bytes and memory < s.memory.total_bytes:
        message = f"The control group allows {memory / GIB:.1f} GiB of {s.memory.total_bytes / GIB:.1f} GiB of memory."
        yield Finding(severity="note", code="MEMORY_LIMIT", message=message, next=_HOST)


def _steal(s: Snapshot) -> Iterator[Finding]:
    steal = s.pressure.steal_percent
    if steal is not None and steal > 1:
        yield Finding(
            severity="warning",
            code="CPU_STEAL",
            message=f"The hypervisor took {steal:.1f} % of the CPU time since boot: host timings are noisy.",
            evidence={"steal_percent": steal},
            fix="Use an instance with dedicated CPUs for timings.",
            next=_HOST,
        )


def _load(s: Snapshot) -> Iterator[Finding]:
    load, cpus = s.pressure.load_1m, s.cpu.usable or s.cpu.logical
    if load is not None and cpus is not None and load > cpus:
        yield Finding(
            severity="warning",
            code="CPU_BUSY",
            message=f"Load {load:g} on {cpus} CPUs: timings taken now compete with other work.",
            evidence=s.pressure.model_dump(exclude_none=True),
            fix="Wait until the load is well below the number of CPUs.",
            next=NextStep(tool="aisp_status", why="look again"),
        )
    for share, what, code in (
        (s.pressure.memory_full, "memory", "MEMORY_PRESSURE"),
        (s.pressure.io_full, "disks", "IO_PRESSURE"),
    ):
        if share is not None and share > 5:
            message = f"In the last 10 s all tasks waited for {what} during {share:g} % of the time."
            yield Finding(
                severity="warning",
                code=code,
                message=message,
                evidence=s.pressure.model_dump(exclude_none=True),
                fix="Wait until this is over before you measure; if it persists, find the cause with vmstat 1.",
                next=NextStep(tool="aisp_status", why="look again"),
            )


def _shm(s: Snapshot) -> Iterator[Finding]:
    size = s.memory.shm_bytes
    if size is not None and size < _SHM_SMALL:
        yield Finding(
            severity="warning",
            code="SHM_SMALL",
            message=f"/dev/shm has {size / 1024**2:.0f} MiB: data loader workers and NCCL may fail with a bus error.",
            evidence={"shm_bytes": size},
            fix="docker run --shm-size=8g (or --ipc=host); sudo mount -o remount,size=8G /dev/shm",
            next=_HOST,
        )


def _disks(s: Snapshot) -> Iterator[Finding]:
    for disk in s.disks:
        free = disk.free_bytes
        if free is not None and disk.kind != "memory" and free < _DISK_SMALL:
            yield Finding(
                severity="critical" if free < GIB // 4 else "warning",
                code="DISK_FULL",
                message=f"{disk.path} has {free / GIB:.2f} GiB left; profiles and artifacts need several.",
                evidence=disk.model_dump(exclude_none=True),
                fix="Remove what is not needed, or set AISP_HOME to a larger file system.",
                next=NextStep(tool="aisp_status"),
            )
        if disk.kind == "network":
            message = f"{disk.path} is a network file system ({disk.filesystem}): input and artifact times vary."
            yield Finding(severity="note", code="NETWORK_DISK", message=message, next=_DISK)


def _frequency(s: Snapshot) -> Iterator[Finding]:
    governor = s.cpu.governor
    if governor == "unknown":
        message = "The CPU frequency governor is unknown: the kernel shows no cpufreq (usual in virtual machines)."
        yield Finding(severity="note", code="GOVERNOR_UNKNOWN", message=message, next=_HOST)
    elif governor != "performance":
        yield Finding(
            severity="warning",
            code="GOVERNOR",
            message=f"The CPU frequency governor is {governor}: host-bound timings vary with load.",
            fix="sudo cpupower frequency-set -g performance",
            next=_HOST,
        )


def _kernel(s: Snapshot) -> Iterator[Finding]:
    if s.memory.numa_balancing == "on" and len(s.numa) > 1:
        yield Finding(
            severity="warning",
            code="NUMA_BALANCING",
            message=f"Automatic NUMA balancing is on with {len(s.numa)} nodes: pages move while you measure.",
            fix="sudo sysctl kernel.numa_balancing=0, and bind with numactl",
            next=_HOST,
        )
    if s.memory.transparent_hugepages == "always":
        yield Finding(
            severity="note",
            code="THP_ALWAYS",
            message="Transparent huge pages are always on: large arrays benefit, but compaction may add latency.",
            evidence={"defrag": s.memory.thp_defrag},
            fix="echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            next=_HOST,
        )


def _swap(s: Snapshot) -> Iterator[Finding]:
    used = s.memory.swap_used_bytes or 0
    if used > 64 * 1024**2:
        message = f"{used / GIB:.2f} GiB are swapped out: first touches will stall."
        yield Finding(severity="warning", code="SWAP_IN_USE", message=message, fix="sudo swapoff -a", next=_HOST)


def _memlock(s: Snapshot) -> Iterator[Finding]:
    limit = s.memory.memlock_bytes
    if limit is not None and 0 <= limit < _MEMLOCK_SMALL and s.network.hcas:
        yield Finding(
            severity="warning",
            code="MEMLOCK_SMALL",
            message=f"Locked memory is limited to {limit / 1024**2:.0f} MiB: RDMA cannot register buffers.",
            fix="ulimit -l unlimited; docker run --ulimit memlock=-1",
            next=_HOST,
        )


def _virtual(s: Snapshot) -> Iterator[Finding]:
    environment = s.surroundings
    if environment.hypervisor != "none seen":
        message = (
            f"A hypervisor is below this system ({environment.hypervisor}): hardware counters and clocks may be hidden."
        )
        yield Finding(
            severity="note",
            code="VIRTUAL_MACHINE",
            message=message,
            evidence={"signs": environment.evidence},
            next=_HOST,
        )
