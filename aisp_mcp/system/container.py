"""Container, hypervisor and control-group limits. No single indication is trusted: the evidence is listed."""

from __future__ import annotations

import os
from pathlib import Path

from aisp_mcp.system.files import ROOT, as_int, exists, fields, names, text
from aisp_mcp.system.records import ResourceLimits, Surroundings

_CONTAINER_FILES = {
    "/.dockerenv": "docker",
    "/run/.containerenv": "podman",
    "/var/run/secrets/kubernetes.io": "kubernetes",
    "/.singularity.d": "apptainer",
}
_CGROUP_WORDS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc", "slurm": "slurm job"}
_VENDORS = {
    "qemu": "kvm",
    "kvm": "kvm",
    "firecracker": "kvm (Firecracker)",
    "amazon ec2": "kvm (EC2)",
    "google": "kvm (Google)",
    "vmware": "vmware",
    "microsoft corporation": "microsoft",
    "innotek": "virtualbox",
    "xen": "xen",
    "openstack": "kvm (OpenStack)",
}
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


def read(root: Path = ROOT) -> Surroundings:
    """Container and virtual machine. "none seen" means that no indication was found, not that there is none."""
    evidence: list[str] = []
    container = _container(root, evidence)
    hypervisor = _hypervisor(root, evidence)
    release = fields(text(root, "/etc/os-release"), "=")
    return Surroundings(
        container=container,
        hypervisor=hypervisor,
        evidence=evidence,
        kernel=text(root, "/proc/sys/kernel/osrelease"),
        distribution=(release.get("PRETTY_NAME") or "").strip('"') or None,
        user="root" if os.geteuid() == 0 else "ordinary",
    )


def _container(root: Path, evidence: list[str]) -> str:
    for path, name in reversed(_CONTAINER_FILES.items()):
        if exists(root, path):
            evidence.append(f"{path} exists")
            return name
    groups = text(root, "/proc/self/cgroup") or ""
    for word, name in _CGROUP_WORDS.items():
        if word in groups:
            evidence.append(f"/proc/self/cgroup names {word}")
            return name
    environ = (text(root, "/proc/1/environ") or "").split("\0")
    values = [e.partition("=")[2] for e in environ if e.startswith("container=")]
    if values:
        evidence.append("the environment of process 1 sets container")
        return values[0]
    return "none seen"


def _hypervisor(root: Path, evidence: list[str]) -> str:
    flags = fields((text(root, "/proc/cpuinfo") or "").partition("\n\n")[0]).get("flags", "").split()
    flagged = "hypervisor" in flags
    if flagged:
        evidence.append("the CPU flag hypervisor is set")
    for file in ("sys_vendor", "product_name"):
        vendor = (text(root, f"/sys/class/dmi/id/{file}") or "").lower()
        for word, name in _VENDORS.items():
            # A firmware may name a board maker such as Microsoft or Google on bare metal: the CPU flag must agree.
            if word in vendor and (flagged or not flags):
                evidence.append(f"DMI {file}: {vendor}")
                return name
    kind = text(root, "/sys/hypervisor/type")
    if kind:
        evidence.append("/sys/hypervisor/type")
        return kind
    if exists(root, "/dev/kvm-clock") or "kvm-clock" in (text(root, _CLOCKS) or ""):
        evidence.append("the clock source kvm-clock is offered")
        return "kvm"
    return "unknown" if flagged else "none seen"


_CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


def limits(root: Path = ROOT) -> ResourceLimits:
    """CPU quota, memory, pids and cpuset of this process's control group, the tightest of its ancestors."""
    groups = _groups(text(root, "/proc/self/cgroup"))
    unified = exists(root, "/sys/fs/cgroup/cgroup.controllers")
    if unified and "" in groups:
        return _v2(root, groups[""])
    if any(groups):
        return _v1(root, groups)
    return ResourceLimits(version="none")


def _groups(raw: str | None) -> dict[str, str]:
    """Controller to path; the key "" is the unified hierarchy."""
    groups = {}
    for line in (raw or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                groups[controller] = parts[2]
    return groups


def _chain(root: Path, base: str, path: str) -> list[str]:
    """Folders from the group up to its mount point that exist. Inside a container, the host's path is often not
    visible; then the mount point itself is this group.
    """
    parts = [p for p in path.split("/") if p and p != ".."]
    chain = ["/".join([base, *parts[:n]]) for n in range(len(parts), -1, -1)]
    return [folder for folder in chain if exists(root, folder)]


def _tightest(values: list[float | None]) -> float | None:
    limits = [value for value in values if value is not None]
    return min(limits) if limits else None


def _as_limit(raw: str | None) -> int | None:
    value = as_int(raw)
    return None if value is None or value < 0 or value >= _UNLIMITED else value


def _v2(root: Path, path: str) -> ResourceLimits:
    chain = _chain(root, "/sys/fs/cgroup", path)
    stat = fields(text(root, f"{chain[0]}/cpu.stat"), " ") if chain else {}
    throttled = as_int(stat.get("throttled_usec"))
    memory = _tightest([_as_limit(text(root, f"{folder}/memory.max")) for folder in chain])
    pids = _tightest([_as_limit(text(root, f"{folder}/pids.max")) for folder in chain])
    return ResourceLimits(
        version="2",
        cpus=_tightest([_quota_v2(text(root, f"{folder}/cpu.max")) for folder in chain]),
        memory_bytes=None if memory is None else int(memory),
        pids=None if pids is None else int(pids),
        cpuset=next(filter(None, (text(root, f"{folder}/cpuset.cpus.effective") for folder in chain)), None),
        throttled_periods=as_int(stat.get("nr_throttled")),
        throttled_s=None if throttled is None else throttled / 1e6,
    )


def _quota_v2(raw: str | None) -> float | None:
    quota, _, period = (raw or "").partition(" ")
    if not quota.isdigit() or not period.isdigit():
        return None
    return int(quota) / int(period)


def _v1(root: Path, groups: dict[str, str]) -> ResourceLimits:
    def chain(controller: str) -> list[str]:
        for mount in (controller, "cpu,cpuacct") if controller in ("cpu", "cpuacct") else (controller,):
            if exists(root, f"/sys/fs/cgroup/{mount}"):
                return _chain(root, f"/sys/fs/cgroup/{mount}", groups.get(controller, "/"))
        return []

    cpu = chain("cpu")
    stat = fields(text(root, f"{cpu[0]}/cpu.stat"), " ") if cpu else {}
    throttled = as_int(stat.get("throttled_time"))
    memory = _tightest([_as_limit(text(root, f"{f}/memory.limit_in_bytes")) for f in chain("memory")])
    pids = _tightest([_as_limit(text(root, f"{f}/pids.max")) for f in chain("pids")])
    cpusets = (text(root, f"{f}/{n}") for f in chain("cpuset") for n in ("cpuset.effective_cpus", "cpuset.cpus"))
    return ResourceLimits(
        version="hybrid" if "cgroup2" in (text(root, "/proc/self/mounts") or "") else "1",
        cpus=_tightest([_quota_v1(root, folder) for folder in cpu]),
        memory_bytes=None if memory is None else int(memory),
        pids=None if pids is None else int(pids),
        cpuset=next(filter(None, cpusets), None),
        throttled_periods=as_int(stat.get("nr_throttled")),
        throttled_s=None if throttled is None else throttled / 1e9,
    )


def _quota_v1(root: Path, folder: str) -> float | None:
    quota = as_int(text(root, f"{folder}/cpu.cfs_quota_us"))
    period = as_int(text(root, f"{folder}/cpu.cfs_period_us"))
    return quota / period if quota and period and quota > 0 else None


def modules(root: Path = ROOT) -> list[str]:
    """Names of the loaded kernel modules."""
    return names(root, "/sys/module")
