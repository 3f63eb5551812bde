"""Environment variables for NCCL, each with the fact that requires it: of this machine, or of a topology in words.

Such as ib-400x8 with NVLink at 900 GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan.cluster import collectives
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


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_FABRIC = re.compile(r"(ib|roce|efa|eth)-(\d{1,5})x(\d{1,3})")
_KINDS = {"ib": "InfiniBand", "roce": "RoCE", "efa": "EFA", "eth": "Ethernet (sockets)"}


@dataclass(frozen=True)
class Described:
    """Nodes that are all alike. gbit_s: of one adapter; nvlink_gb_s: of a GPU, both directions together."""

    nodes: int
    gpus: int
    kind: str | None
    gbit_s: float
    adapters: int
    nvlink_gb_s: float | None

    def facts(self) -> list[str]:
        """The description, and the rates that follow from it."""
        lines = [f"{self.nodes} node(s) of {self.gpus} GPUs, as described"]
        if self.kind is not None:
            rate = self.gbit_s * self.adapters / 8
            lines.append(f"{self.adapters} {_KINDS[self.kind]} ports of {self.gbit_s:g} Gb/s: {rate:g} GB/s per node")
        if self.nvlink_gb_s is not None:
            lines.append(f"NVLink: {self.nvlink_gb_s / 2:g} GB/s per GPU and direction")
        return lines

    def fabric(self) -> collectives.Fabric:
        """Rates per GPU and direction. Without NVLink, GPUs of a node communicate through the adapters."""
        network = self.gbit_s * 1e9 / 8 * self.adapters / self.gpus
        link = self.nvlink_gb_s * 1e9 / 2 if self.nvlink_gb_s else network
        kind = collectives.kind_at(link) if self.nvlink_gb_s else "pcie"
        return collectives.Fabric(link, network or link, self.gpus, kind)

    def times(self, sizes: Sequence[int]) -> list[tuple[str, int, float]]:
        """Collective, bytes and seconds over all GPUs."""
        ranks, fabric = self.nodes * self.gpus, self.fabric()
        return [
            (name, size, collectives.seconds(name, size, ranks, 1, fabric)) for name in COLLECTIVES for size in sizes
        ]

    def variables(self) -> list[Variable]:
        """Settings that NCCL cannot detect on such nodes."""
        if self.kind == "efa" and self.nodes > 1:
            because = "EFA is reached through libfabric; the aws-ofi-nccl plugin must be installed."
            return [Variable(name="FI_PROVIDER", value="efa", because=because)]
        if self.kind == "eth" and self.nodes > 1:
            return [
                Variable(name="NCCL_IB_DISABLE", value="1", because="There is no InfiniBand or RoCE to search for.")
            ]
        return []


def parse(nodes: int, gpus: int, fabric: str | None, nvlink_gb_s: float | None) -> Described:
    """Read --fabric KIND-GBITxADAPTERS. Raises UsageError BAD_FABRIC."""
    if fabric is None:
        if nodes > 1:
            raise UsageError("BAD_FABRIC", "Several nodes need a fabric.", "For example --fabric ib-400x8.")
        return Described(nodes, gpus, None, 0.0, 0, nvlink_gb_s)
    match = _FABRIC.fullmatch(fabric.lower())
    if match is None or not int(match[2]) or not int(match[3]):
        raise UsageError(
            "BAD_FABRIC",
            f"'{fabric[:40]}' does not describe a fabric.",
            "KIND-GBITxADAPTERS per node, KIND one of ib, roce, efa, eth: ib-400x8 is eight 400 Gb/s adapters.",
        )
    return Described(nodes, gpus, match[1], float(match[2]), int(match[3]), nvlink_gb_s)
