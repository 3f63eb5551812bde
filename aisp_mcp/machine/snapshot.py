"""Everything triage examines, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.system import container, cpu, disk, memory, network, software
from aisp_mcp.system.files import ROOT, names, number, text
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.records import (
    Cpu,
    Disk,
    GpuReading,
    HostMemory,
    Network,
    NumaNode,
    Pressure,
    ResourceLimits,
    Software,
    Surroundings,
)


@dataclass(frozen=True)
class Drivers:
    """State of NVIDIA devices and profiling rights without any library."""

    nvidia_cards: int
    profiling_admin_only: bool | None
    perf_event_paranoid: int | None


@dataclass(frozen=True)
class Snapshot:
    """The machine at one moment, as records."""

    gpus: GpuReading
    cpu: Cpu
    numa: list[NumaNode]
    memory: HostMemory
    pressure: Pressure
    limits: ResourceLimits
    surroundings: Surroundings
    disks: list[Disk]
    network: Network
    software: Software
    drivers: Drivers


def take(paths: list[Path], root: Path = ROOT, deadline_s: float = 3.0) -> Snapshot:
    """Read everything. paths: folders whose file systems matter. Nothing raises; missing values are None."""
    gpus = nvml.read(deadline_s)
    return Snapshot(
        gpus=gpus,
        cpu=cpu.read(root),
        numa=cpu.numa(root),
        memory=memory.read(root),
        pressure=memory.pressure(root),
        limits=container.limits(root),
        surroundings=container.read(root),
        disks=disk.read(paths, root),
        network=network.read(root),
        software=software.read(root, gpus.cuda_driver),
        drivers=drivers(root),
    )


def drivers(root: Path = ROOT) -> Drivers:
    """NVIDIA display and 3D controllers on the PCI bus, and who may read GPU counters."""
    raw = text(root, "/proc/driver/nvidia/params") or ""
    admin_only = None
    for line in raw.splitlines():
        if line.startswith("RmProfilingAdminOnly"):
            admin_only = line.rpartition(":")[2].strip() == "1"
    return Drivers(
        nvidia_cards=sum(_is_card(root, slot) for slot in names(root, "/sys/bus/pci/devices")),
        profiling_admin_only=admin_only,
        perf_event_paranoid=number(root, "/proc/sys/kernel/perf_event_paranoid"),
    )


def _is_card(root: Path, slot: str) -> bool:
    folder = f"/sys/bus/pci/devices/{slot}"
    nvidia = text(root, f"{folder}/vendor") == "0x10de"
    return nvidia and (text(root, f"{folder}/class") or "").startswith("0x03")
