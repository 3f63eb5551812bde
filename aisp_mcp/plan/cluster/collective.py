"""Time of a collective from the topology: NVLink or similar inside a node, all adapters of the node between nodes.

A ring over several nodes enters and leaves each node once per channel, and NCCL opens a channel per adapter. So the
ranks of a group that share a node also share its adapters: `ranks_in_node` of them send at that many times the rate of
one adapter. The slower part sets the pace, because chunks pipeline through both. Factors as in nccl-tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from aisp_mcp.system.bus import FACTORS


@dataclass(frozen=True)
class Fabric:
    """Rates in bytes/s per GPU and direction; shares: fraction of these rates that a large collective reaches."""

    link: float
    network: float
    per_node: int
    link_share: float = 1.0
    network_share: float = 1.0
    alpha_s: float = 0.0
    network_alpha_s: float = 0.0


def ranks_in_node(ranks: int, stride: int, per_node: int) -> int:
    """Ranks of a group that share a node, if neighbours in the group are `stride` GPUs apart."""
    return max(1, min(ranks, per_node // stride))


def seconds(name: str, size: float, ranks: int, stride: int, fabric: Fabric) -> float:
    """Time of one collective over `ranks` GPUs. size: as nccl-tests, the larger of send and receive buffer in bytes."""
    if ranks == 1:
        return 0.0
    inside = ranks_in_node(ranks, stride, fabric.per_node)
    alpha = fabric.alpha_s + (fabric.network_alpha_s if inside < ranks else 0.0)
    link = fabric.link * fabric.link_share
    network = fabric.network * fabric.network_share
    if name == "all_to_all":  # each rank has its own share; peers on other nodes are reached through this GPU's adapter
        return alpha + max(size * (inside - 1) / ranks / link, size * (ranks - inside) / ranks / network)
    volume = size * FACTORS[name](ranks)
    if inside == ranks:
        return alpha + volume / link
    paths = [network * inside] + ([link] if inside > 1 else [])
    return alpha + volume / min(paths)
