"""Problems of this machine, ranked: those that make results wrong first, then those that make them slow or noisy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from aisp_mcp.envelope import NextStep
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system.records import Finding, Gpu
from aisp_mcp.system.software import torch_needs_triton

_RANK = {"critical": 0, "warning": 1, "note": 2}


def all_findings(snapshot: Snapshot) -> list[Finding]:
    """Every finding, most severe first; within a severity: GPU, then software, then host."""
    return ranked(
        [*gpu_findings(snapshot), *software_findings(snapshot), *host_findings(snapshot)],
    )


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by severity, stable."""
    return sorted(findings, key=lambda finding: _RANK[finding.severity])


_INFO = NextStep(tool="aisp_gpu_info", why="all counters and processes of each GPU")
_OLD_DRIVER_GAPS = 12
_SLOW = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake", "sw_thermal_slowdown")


def gpu_findings(s: Snapshot) -> Iterator[Finding]:
    """The driver first, then each GPU in order."""
    yield from _driver(s)
    for gpu in s.gpus.gpus:
        for rule in (_lost, _memory_errors, _slowed, _power, _link, _modes, _busy, _gaps):
            yield from rule(gpu)


def _driver(s: Snapshot) -> Iterator[Finding]:
    problem = s.gpus.problem
    if problem is None:
        return
    if problem.code == "NO_DRIVER" and s.drivers.nvidia_cards == 0:
        yield Finding(
            severity="note",
            code="NO_GPU",
            message="No NVIDIA GPU: no card on the PCI bus and no libnvidia-ml.so.1. CPU variants of the tools work.",
            next=NextStep(tool="aisp_system_dependencies", why="what works without a GPU, and what is missing"),
        )
        return
    yield Finding(
        severity="critical",
        code=problem.code,
        message=problem.message,
        evidence={"nvidia_cards_on_pci": s.drivers.nvidia_cards, "kernel_module": s.software.driver},
        fix=problem.hint or "Install the NVIDIA driver of the distribution, then reboot.",
        next=NextStep(tool="aisp_system_software", why="driver, module and toolkit versions side by side"),
    )


def _lost(g: Gpu) -> Iterator[Finding]:
    if g.problem is not None:
        yield Finding(
            severity="critical",
            code=g.problem.code,
            message=f"GPU {g.index}: {g.problem.message}",
            fix=g.problem.hint,
            next=_INFO,
        )


def _memory_errors(g: Gpu) -> Iterator[Finding]:
    h = g.health
    counts = {"uncorrected_volatile": h.uncorrected_volatile, "uncorrected_aggregate": h.uncorrected_aggregate}
    if h.remap_failed:
        message = f"GPU {g.index}: a memory row could not be remapped. The card must be replaced."
        yield Finding(
            severity="critical", code="ROW_REMAP_FAILED", message=message, fix="Drain and replace the card.", next=_INFO
        )
    if h.uncorrected_volatile:
        yield Finding(
            severity="critical",
            code="ECC_UNCORRECTED",
            message=f"GPU {g.index}: {h.uncorrected_volatile} uncorrected memory errors since the driver was loaded.",
            evidence=counts,
            fix=f"Drain the GPU, then sudo nvidia-smi --gpu-reset -i {g.index}; replace it if they return.",
            next=_INFO,
        )
    if h.remap_pending or h.retirement_pending:
        yield Finding(
            severity="warning",
            code="MEMORY_REPAIR_PENDING",
            message=f"GPU {g.index}: a memory repair waits for a reset.",
            evidence={"remap_pending": h.remap_pending, "retirement_pending": h.retirement_pending},
            fix=f"sudo nvidia-smi --gpu-reset -i {g.index}",
            next=_INFO,
        )
    repaired = {"retired_pages": h.retired_pages, "remapped_rows": h.remapped_uncorrectable}
    if any(repaired.values()) and not h.remap_failed:
        message = f"GPU {g.index}: memory was repaired before (retired pages or remapped rows)."
        yield Finding(severity="note", code="MEMORY_REPAIRED", message=message, evidence=repaired, next=_INFO)


def _slowed(g: Gpu) -> Iterator[Finding]:
    reasons = g.clocks.event_reasons or []
    slow = [reason for reason in reasons if reason in _SLOW]
    if slow:
        yield Finding(
            severity="warning",
            code="GPU_THROTTLED",
            message=f"GPU {g.index}: clocks are currently reduced by {', '.join(slow)}.",
            evidence={"sm_mhz": g.clocks.sm_mhz, "sm_max_mhz": g.clocks.sm_max_mhz, "gpu_c": g.thermal.gpu_c},
            fix="Check cooling, power cables and the node's power budget.",
            next=_INFO,
        )
    elif "sw_power_cap" in reasons:
        yield Finding(
            severity="note",
            code="GPU_AT_POWER_LIMIT",
            message=f"GPU {g.index}: the power limit currently reduces the clocks.",
            evidence={"draw_w": g.power.draw_w, "limit_w": g.power.limit_w},
            next=_INFO,
        )


def _power(g: Gpu) -> Iterator[Finding]:
    limit, default = g.power.limit_w, g.power.default_limit_w
    if limit is not None and default is not None and limit < 0.99 * default:
        yield Finding(
            severity="warning",
            code="POWER_LIMIT_LOWERED",
            message=f"GPU {g.index}: the power limit is {limit:g} W, {default:g} W by default.",
            evidence={"limit_w": limit, "default_limit_w": default},
            fix=f"sudo nvidia-smi -i {g.index} -pl {default:g}",
            next=_INFO,
        )
    sm, best = g.clocks.sm_application_mhz, g.clocks.sm_max_mhz
    if sm is not None and best is not None and sm < best:
        yield Finding(
            severity="note",
            code="APPLICATION_CLOCK_BELOW_MAX",
            message=f"GPU {g.index}: application clock {sm} MHz, highest {best} MHz.",
            fix=f"sudo nvidia-smi -i {g.index} --reset-applications-clocks",
            next=_INFO,
        )


def _link(g: Gpu) -> Iterator[Finding]:
    p = g.pcie
    if p.width and p.width_max and p.width < p.width_max:
        yield Finding(
            severity="warning",
            code="PCIE_WIDTH",
            message=f"GPU {g.index}: PCIe trained at x{p.width}, x{p.width_max} is possible.",
            evidence=p.model_dump(exclude_none=True),
            fix="Reseat the card or riser; check the slot's wiring and bifurcation in the firmware.",
            next=_INFO,
        )
    busy = (g.activity.gpu_percent or 0) > 0
    if p.generation and p.generation_max and p.generation < p.generation_max:
        # An idle card lowers its link generation to save power; only under load is it a fault.
        yield Finding(
            severity="warning" if busy else "note",
            code="PCIE_GENERATION",
            message=f"GPU {g.index}: PCIe runs at generation {p.generation} of {p.generation_max}"
            + ("." if busy else "; normal while idle, measure under load."),
            evidence=p.model_dump(exclude_none=True),
            next=_INFO,
        )


def _modes(g: Gpu) -> Iterator[Finding]:
    if g.modes.persistence is False:
        yield Finding(
            severity="warning",
            code="PERSISTENCE_OFF",
            message=f"GPU {g.index}: persistence mode is off; the first call of each process waits for the driver.",
            fix=f"sudo nvidia-smi -i {g.index} -pm 1",
            next=_INFO,
        )
    if g.modes.compute_mode == "prohibited":
        yield Finding(
            severity="critical",
            code="COMPUTE_PROHIBITED",
            message=f"GPU {g.index}: compute mode is prohibited; no CUDA program can run.",
            fix=f"sudo nvidia-smi -i {g.index} -c DEFAULT",
            next=_INFO,
        )
    elif g.modes.compute_mode in ("exclusive_process", "exclusive_thread"):
        yield Finding(
            severity="note",
            code="COMPUTE_EXCLUSIVE",
            message=f"GPU {g.index}: one process at a time; two-worker comparisons cannot run on it.",
            fix=f"sudo nvidia-smi -i {g.index} -c DEFAULT",
            next=_INFO,
        )
    if g.modes.mig:
        message = f"GPU {g.index}: MIG is on; measured rates are those of an instance, not of the card."
        yield Finding(severity="note", code="MIG_ON", message=message, next=_INFO)
    if g.health.ecc_enabled is False:
        message = f"GPU {g.index}: ECC is off; memory errors go unnoticed."
        fix = f"sudo nvidia-smi -i {g.index} -e 1, then reboot"
        yield Finding(severity="note", code="ECC_OFF", message=message, fix=fix, next=_INFO)


def _busy(g: Gpu) -> Iterator[Finding]:
    others = [p for p in g.activity.processes or [] if p.pid != os.getpid()]
    if others:
        yield Finding(
            severity="warning",
            code="GPU_IN_USE",
            message=f"GPU {g.index}: {len(others)} process(es) hold it; measurements will be disturbed.",
            evidence={"processes": [p.model_dump(exclude_none=True) for p in others[:8]]},
            fix="Wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES.",
            next=_INFO,
        )


def _gaps(g: Gpu) -> Iterator[Finding]:
    if len(g.unread) >= _OLD_DRIVER_GAPS and g.problem is None:
        yield Finding(
            severity="note",
            code="NVML_GAPS",
            message=f"GPU {g.index}: {len(g.unread)} values could not be read: old driver, vGPU or consumer card.",
            evidence={"unread": g.unread},
            next=NextStep(tool="aisp_system_software", why="driver version"),
        )


GIB = 1024**3
_SHM_SMALL = 1 * GIB  # the default of docker is 64 MiB; NCCL and data loaders with workers need more
_DISK_SMALL = 5 * GIB
_MEMLOCK_SMALL = 64 * 1024**2
_DISK = NextStep(tool="aisp_hw_disk", why="measure this file system")
_HOST = NextStep(tool="aisp_system_full", why="every setting and limit of the host")


def host_findings(s: Snapshot) -> Iterator[Finding]:
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
            message = f"For {share:g} % of the last 10 s, every task was waiting for {what}."
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


_VERSIONS = NextStep(tool="aisp_system_software", why="all versions side by side")
_NEEDS = NextStep(tool="aisp_system_dependencies", why="which tools lack what, with install commands")


def numbers(version: str | None) -> tuple[int, ...]:
    """`13.0` as (13, 0); stops at the first part that is not a number."""
    parts: list[int] = []
    for part in (version or "").split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def software_findings(s: Snapshot) -> Iterator[Finding]:
    """Mismatches, then missing profilers."""
    yield from mismatches(s)
    yield from _profilers(s)


def mismatches(s: Snapshot) -> Iterator[Finding]:
    """Mismatches of torch and driver, toolkit and driver, triton and torch, and missing rights to profile."""
    yield from _torch(s)
    yield from _toolkit(s)
    yield from _triton(s)
    yield from _rights(s)


def _torch(s: Snapshot) -> Iterator[Finding]:
    torch, built = s.software.packages.get("torch"), s.software.torch_cuda
    if torch is None:
        yield Finding(
            severity="warning",
            code="NO_TORCH",
            message="torch is not installed: benchmarks and most probes cannot run.",
            fix="pip install 'aisp-mcp[bench]'",
            next=_NEEDS,
        )
    elif s.gpus.gpus and built is None and "rocm" not in torch:
        yield Finding(
            severity="critical",
            code="TORCH_WITHOUT_CUDA",
            message=f"torch {torch} is a CPU build, but this machine has {len(s.gpus.gpus)} NVIDIA GPU(s).",
            fix="pip install --force-reinstall torch from the index of a CUDA build (pytorch.org, Get Started)",
            next=_VERSIONS,
        )
    elif built and s.gpus.cuda_driver:
        yield from _torch_driver(s, torch, built, s.gpus.cuda_driver)


def _torch_driver(s: Snapshot, torch: str, built: str, supported: str) -> Iterator[Finding]:
    want, have = numbers(built), numbers(supported)
    evidence = {"torch": torch, "torch_cuda": built, "cuda_driver": supported, "driver": s.gpus.driver}
    if want[:1] > have[:1]:  # within a major version the driver runs newer minor ones
        yield Finding(
            severity="critical",
            code="DRIVER_TOO_OLD_FOR_TORCH",
            message=f"torch was built for CUDA {built}; the driver supports up to {supported}.",
            evidence=evidence,
            fix="Install a newer driver, or a torch build for an older CUDA.",
            next=_VERSIONS,
        )
    elif want > have:
        yield Finding(
            severity="note",
            code="DRIVER_MINOR_BEHIND_TORCH",
            message=f"torch was built for CUDA {built}, the driver supports {supported}: kernels run, PTX may not.",
            evidence=evidence,
            next=_VERSIONS,
        )


def _toolkit(s: Snapshot) -> Iterator[Finding]:
    toolkit, supported = s.software.toolkit, s.gpus.cuda_driver
    if toolkit and supported and numbers(toolkit)[:2] > numbers(supported):
        major = numbers(toolkit)[:1] > numbers(supported)[:1]
        yield Finding(
            severity="warning" if major else "note",
            code="DRIVER_TOO_OLD_FOR_TOOLKIT",
            message=f"CUDA toolkit {toolkit} is newer than what the driver supports ({supported}).",
            evidence={"toolkit": toolkit, "cuda_driver": supported},
            fix="Install a newer driver, or compile with an older toolkit (within a major version: to SASS, not PTX).",
            next=_VERSIONS,
        )


def _triton(s: Snapshot) -> Iterator[Finding]:
    needed, have = torch_needs_triton(), s.software.packages.get("triton")
    if needed and have and needed != have:
        yield Finding(
            severity="warning",
            code="TRITON_MISMATCH",
            message=f"triton {have} is installed; this torch asks for {needed}.",
            fix=f"pip install triton=={needed}",
            next=_VERSIONS,
        )


def _profilers(s: Snapshot) -> Iterator[Finding]:
    severity = "warning" if s.gpus.gpus else "note"
    missing = [(s.software.profilers.nsys, "NO_NSYS", "Nsight Systems (nsys)", "sudo apt-get install nsight-systems")]
    if s.gpus.gpus:  # without a GPU, ncu has nothing to profile; nsys also traces the host
        ncu = (s.software.profilers.ncu, "NO_NCU", "Nsight Compute (ncu)", "sudo apt-get install nsight-compute")
        missing.append(ncu)
    for path, code, name, fix in missing:
        if path is None:
            message = f"{name} was not found on PATH, in /opt/nvidia or in /usr/local/cuda*."
            yield Finding(severity=severity, code=code, message=message, fix=fix, next=_NEEDS)


def _rights(s: Snapshot) -> Iterator[Finding]:
    if s.drivers.profiling_admin_only and s.surroundings.user != "root":
        yield Finding(
            severity="warning",
            code="COUNTERS_RESTRICTED",
            message="Only root may read GPU performance counters: ncu will end with ERR_NVGPUCTRPERM.",
            fix="echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee"
            " /etc/modprobe.d/nvidia-prof.conf, then reload the driver",
            next=_NEEDS,
        )
    paranoid = s.drivers.perf_event_paranoid
    if paranoid is not None and paranoid > 2 and s.surroundings.user != "root":
        yield Finding(
            severity="note",
            code="CPU_SAMPLING_RESTRICTED",
            message=f"kernel.perf_event_paranoid is {paranoid}: perf and the CPU sampling of nsys are refused.",
            fix="sudo sysctl kernel.perf_event_paranoid=2",
            next=_NEEDS,
        )
