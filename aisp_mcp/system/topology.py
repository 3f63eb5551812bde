"""Links between GPUs, processors and adapters, through NVML and /sys."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from aisp_mcp.system import cpu, network
from aisp_mcp.system.files import ROOT, number
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.gpu.nvml import DeviceReader
from aisp_mcp.system.records import GpuPair, GpuPlace, Network, NumaNode, Problem, Topology

# nvmlGpuTopologyLevel, in the words of `nvidia-smi topo -m`.
_LEVELS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P = {0: "ok", 1: "chipset not supported", 2: "GPU not supported", 3: "topology not supported"}
_P2P |= {4: "disabled by registry key", 5: "not supported", 6: "unknown"}
# Bytes/s per direction of one link, by generation reported by nvmlDeviceGetNvLinkVersion (NVIDIA NVLink pages).
_NVLINK = {
    1: ("1.0", 20e9),
    2: ("2.0", 25e9),
    3: ("2.2", 25e9),
    4: ("3.0", 25e9),
    5: ("3.1", 25e9),
    6: ("4.0", 25e9),
    7: ("5.0", 50e9),
}
# nvmlGpuP2PCapsIndex of nvml.h; the binding (13.615) defines the first as a tuple by a stray comma.
_P2P_READ, _P2P_WRITE, _P2P_NVLINK, _P2P_ATOMICS = range(4)
_MAX_LINKS = 18
# GT/s per lane and line code (PCI-SIG); generation 6 uses flits, whose payload share is 0.9516 at best.
_PCIE = {
    1: (2.5, 0.8),
    2: (5.0, 0.8),
    3: (8.0, 128 / 130),
    4: (16.0, 128 / 130),
    5: (32.0, 128 / 130),
    6: (64.0, 0.9516),
}


def pcie_bytes_s(generation: int | None, width: int | None) -> float | None:
    """Theoretical bytes/s per direction after line coding, before packet headers; None for an unknown generation."""
    if generation not in _PCIE or not width:
        return None
    rate, code = _PCIE[generation]
    return rate * 1e9 / 8 * code * width


def read(root: Path = ROOT, deadline_s: float = 3.0) -> Topology:
    """The whole topology; without GPUs the host's part, with the reason in `problem`."""
    nodes, net = cpu.numa(root), network.read(root)
    gpus: list[GpuPlace] = []
    pairs: list[GpuPair] = []

    def work(module: Any) -> None:
        handles = [module.nvmlDeviceGetHandleByIndex(i) for i in range(module.nvmlDeviceGetCount())]
        for index, handle in enumerate(handles):
            gpus.append(_gpu_place(DeviceReader(module, handle), index, nodes, root))
        for a, b in itertools.combinations(range(len(handles)), 2):
            pairs.append(_pair(DeviceReader(module, handles[a]), a, b, handles[b]))

    problem: Problem | None = None
    try:
        nvml.call(work, deadline_s)
    except Exception as error:
        problem = nvml.problem_of(error)
    return Topology(
        gpus=list(gpus),
        pairs=list(pairs),
        numa=nodes,
        nics=net.nics,
        hcas=net.hcas,
        nearest_gpus=_nearest(gpus, net),
        problem=problem,
    )


def _gpu_place(r: DeviceReader, index: int, nodes: list[NumaNode], root: Path) -> GpuPlace:
    info = r.get("nvmlDeviceGetPciInfo")
    bus_id = getattr(info, "busId", None)
    bus = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    node = _node(root, bus)
    if node is None and len(nodes) == 1:  # a virtual machine's bus reports none, and there is only this one
        node = nodes[0].node
    generation, width = r.get("nvmlDeviceGetCurrPcieLinkGeneration"), r.get("nvmlDeviceGetCurrPcieLinkWidth")
    best = (r.get("nvmlDeviceGetMaxPcieLinkGeneration"), r.get("nvmlDeviceGetMaxPcieLinkWidth"))
    links, version, rate = _nvlinks(r)
    return GpuPlace(
        index=index,
        name=r.get("nvmlDeviceGetName"),
        uuid=r.get("nvmlDeviceGetUUID"),
        bus_id=bus,
        numa_node=node,
        cpus=next((n.cpus for n in nodes if n.node == node), None),
        pcie=f"gen{generation} x{width} of gen{best[0]} x{best[1]}" if generation else None,
        pcie_per_direction_bytes_s=pcie_bytes_s(generation, width),
        nvlinks=links,
        nvlink_version=version,
        nvlink_per_direction_bytes_s=rate,
    )


def _node(root: Path, bus_id: str | None) -> int | None:
    """NUMA node from /sys; NVML writes the PCI domain with eight digits, the kernel with four."""
    if not bus_id:
        return None
    value = number(root, f"/sys/bus/pci/devices/{bus_id[-12:].lower()}/numa_node")
    return value if value is not None and value >= 0 else None


def _nvlinks(r: DeviceReader) -> tuple[int | None, str | None, float | None]:
    """(active links, generation, bytes/s per direction over all of them); None if the device does not report it."""
    states = []
    for link in range(_MAX_LINKS):
        state = r.get("nvmlDeviceGetNvLinkState", link)
        if state is None:
            break
        states.append(state)
    if not states:
        return None, None, None
    active = [link for link, state in enumerate(states) if state == 1]
    if not active:
        return 0, None, None
    raw = r.get("nvmlDeviceGetNvLinkVersion", active[0])
    version, per_link = _NVLINK.get(-1 if raw is None else raw, (None if raw is None else str(raw), None))
    return len(active), version, None if per_link is None else per_link * len(active)


def _pair(r: DeviceReader, a: int, b: int, other: Any) -> GpuPair:
    def status(index: int) -> str | None:
        value = r.get("nvmlDeviceGetP2PStatus", other, index)
        return None if value is None else _P2P.get(value, str(value))

    level = r.get("nvmlDeviceGetTopologyCommonAncestor", other)
    link = status(_P2P_NVLINK)
    return GpuPair(
        a=a,
        b=b,
        ancestor=None if level is None else _LEVELS.get(level, str(level)),
        nvlink=None if link is None else link == "ok",
        read=status(_P2P_READ),
        write=status(_P2P_WRITE),
        atomics=status(_P2P_ATOMICS),
    )


def _nearest(gpus: list[GpuPlace], net: Network) -> dict[str, list[int]]:
    adapters = [(nic.name, nic.numa_node) for nic in net.nics] + [(hca.device, hca.numa_node) for hca in net.hcas]
    return {
        name: [p.index for p in gpus if p.numa_node == node]
        for name, node in adapters
        if node is not None and any(p.numa_node == node for p in gpus)
    }
