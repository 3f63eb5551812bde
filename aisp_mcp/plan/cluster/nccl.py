"""Environment variables for NCCL, each with the fact of this machine that requires it."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.system.records import Topology

VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali")


class Variable(Record):
    """One setting and its reason."""

    name: str
    value: str
    because: str = Field(description="Fact that was read here.")


def variables(topology: Topology, nodes: int) -> list[Variable]:
    """Variables for what NCCL cannot detect here. Often empty: detection inside one node needs no help."""
    if nodes == 1:
        return _one_node(topology)
    return [*_adapters(topology), *_interfaces(topology), *_one_node(topology)]


def _one_node(topology: Topology) -> list[Variable]:
    refused = [pair for pair in topology.pairs if not pair.nvlink and pair.read not in (None, "ok")]
    if not refused or len(refused) != len(topology.pairs):
        return []
    fact = f"The driver refuses peer reads between all {len(refused)} pairs of GPUs ({refused[0].read})."
    return [Variable(name="NCCL_P2P_DISABLE", value="1", because=fact)]


def _adapters(topology: Topology) -> list[Variable]:
    """Name the InfiniBand or RoCE adapters that are up, if some are not: a dead port costs a time-out at start."""
    up = [hca for hca in topology.hcas if (hca.state or "").upper().endswith("ACTIVE")]
    if not up or len(up) == len(topology.hcas):
        return []
    down = sorted({hca.device for hca in topology.hcas} - {hca.device for hca in up})
    # Without "=", NCCL takes each name as a prefix: mlx5_1 would select mlx5_10 too.
    value = "=" + ",".join(sorted({hca.device for hca in up}))
    return [Variable(name="NCCL_IB_HCA", value=value, because=f"Ports of {', '.join(down)} are not active.")]


def _interfaces(topology: Topology) -> list[Variable]:
    """Exclude bridges and container interfaces, which exist on every node under the same name, from bootstrap."""
    virtual = sorted(nic.name for nic in topology.nics if nic.name.startswith(VIRTUAL) and nic.name != "lo")
    if not virtual:
        return []
    prefixes = sorted({next(p for p in VIRTUAL if name.startswith(p)) for name in virtual})
    fact = f"Virtual interfaces are up here: {', '.join(virtual[:6])}."
    return [Variable(name="NCCL_SOCKET_IFNAME", value="^lo," + ",".join(prefixes), because=fact)]
