"""A topology in words, such as ib-400x8 with NVLink at 900 GB/s, as facts, NCCL variables and collective times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.errors import UsageError
from aisp_mcp.plan.cluster import collectives
from aisp_mcp.plan.cluster.nccl import Variable
from aisp_mcp.plan.training import calibration

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
        shares = calibration.shares()
        network = self.gbit_s * 1e9 / 8 * self.adapters / self.gpus
        link = self.nvlink_gb_s * 1e9 / 2 if self.nvlink_gb_s else network
        return collectives.Fabric(
            link, network or link, self.gpus, shares.link_share, shares.network_share,
            shares.collective_s, shares.network_collective_s,
        )  # fmt: skip

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
