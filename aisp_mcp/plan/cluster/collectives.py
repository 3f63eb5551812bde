"""Time of a collective: from the topology, from a bus bandwidth, or fitted to measured sizes.

The fitted line is t = alpha + bytes / beta.

NVLink or similar works inside a node, all adapters of the node between nodes. A ring over several nodes enters and
leaves each node once per channel, and NCCL opens a channel per adapter. So the ranks of a group that share a node also
share its adapters: `ranks_in_node` of them send at that many times the rate of one adapter. The slower part sets the
pace, because chunks pipeline through both. Factors as in nccl-tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from pydantic import Field

from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import CollectiveShares, Curve
from aisp_mcp.records import Record
from aisp_mcp.system.bus import FACTORS


@dataclass(frozen=True)
class Fabric:
    """Rates in bytes/s per GPU and direction. links: kind of the links inside a node, a key of the curves."""

    link: float
    network: float
    per_node: int
    links: str = "other"


def kind_of(link: str) -> str:
    """The curves that hold for a link of the GPU table, such as `nvlink4 bridge`."""
    name = link.partition(" ")[0]
    return {"nvlink2": "nvlink3"}.get(name, name if any(row.links == name for row in _shares().curves) else "other")


def kind_at(nvlink_bytes_s: float) -> str:
    """The curves of an NVLink of that rate per direction. A cut generation (H800, H20) has the rate of an older one."""
    return "nvlink3" if nvlink_bytes_s <= 320e9 else "nvlink4" if nvlink_bytes_s <= 500e9 else "nvlink5"


def ranks_in_node(ranks: int, stride: int, per_node: int) -> int:
    """Ranks of a group that share a node, if neighbours in the group are `stride` GPUs apart."""
    return max(1, min(ranks, per_node // stride))


@lru_cache(maxsize=1 << 14)
def seconds(name: str, size: float, ranks: int, stride: int, fabric: Fabric) -> float:
    """Time of one collective over `ranks` GPUs. size: as nccl-tests, the larger of send and receive buffer in bytes."""
    if ranks == 1:
        return 0.0
    inside = ranks_in_node(ranks, stride, fabric.per_node)
    curve, between = _curve(fabric.links, name), _shares().network
    if inside == ranks:
        return curve.seconds(ranks, size * FACTORS[name](ranks), fabric.link)
    start, network = between.start_us * 1e-6, fabric.network * between.share
    if name == "all_to_all":  # each rank has its own share; peers on other nodes are reached through this GPU's adapter
        return start + max(
            curve.seconds(inside, size * (inside - 1) / ranks, fabric.link), size * (ranks - inside) / ranks / network
        )
    volume = size * FACTORS[name](ranks)
    within = curve.seconds(inside, volume, fabric.link) if inside > 1 else 0.0
    ramp = between.ramp_us * 1e-6 * volume / (volume + between.ramp_mb * 1e6) if name == "all_reduce" else 0.0
    return start + ramp + max(within, volume / (network * inside))


def _shares() -> CollectiveShares:
    return tables.collectives()


@cache
def _curve(links: str, name: str) -> Curve:
    wanted = "all_gather" if name == "reduce_scatter" else name
    return next(row for row in _shares().curves if (row.links, row.collective) == (links, wanted))


Point = tuple[float, float]  # bytes, seconds


class Fit(Record):
    """The line fitted to one collective, with its leave-one-out errors."""

    collective: str
    alpha_s: float
    bytes_per_s: float = Field(description="Algorithm bandwidth of an endless message.")
    left_out_mape: float = Field(description="Mean absolute relative error of sizes that the fit did not see.")
    p10: float = Field(description="Measured over predicted, tenth percentile over left-out sizes.")
    p90: float

    def seconds(self, size: float) -> float:
        """Predicted time of a message of that many bytes."""
        return self.alpha_s + size / self.bytes_per_s


def line(points: Sequence[Point]) -> tuple[float, float]:
    """(alpha in s, s per byte), neither negative, with the smallest sum of squared relative errors.

    Raises ValueError below two sizes.
    """
    if len({size for size, _ in points}) < 2:
        raise ValueError("a line needs two sizes")
    weights = [1.0 / (t * t) for _, t in points]
    total = sum(weights)
    x = sum(w * size for w, (size, _) in zip(weights, points, strict=True)) / total
    y = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = sum(w * (size - x) ** 2 for w, (size, _) in zip(weights, points, strict=True))
    slope = sum(w * (size - x) * (t - y) for w, (size, t) in zip(weights, points, strict=True)) / spread
    if slope < 0:
        return y, 0.0
    if y < slope * x:  # through the origin: no call takes negative time
        through = sum(w * size * t for w, (size, t) in zip(weights, points, strict=True))
        return 0.0, through / sum(w * size * size for w, (size, _) in zip(weights, points, strict=True))
    return y - slope * x, slope


def left_out(points: Sequence[Point]) -> list[float]:
    """Measured over predicted for each size, predicted from all others."""
    values = []
    for at, (size, seconds) in enumerate(points):
        alpha, slope = line([*points[:at], *points[at + 1 :]])
        values.append(seconds / (alpha + slope * size))
    return values


def fit(collective: str, points: Sequence[Point]) -> Fit:
    """The line through all sizes. Raises ValueError below three sizes or without growth."""
    if len(points) < 3:
        raise ValueError("a fit with an error needs three sizes")
    alpha, slope = line(points)
    if slope <= 0:
        raise ValueError("time does not grow with size")
    ratios = left_out(points)
    cuts = statistics.quantiles(ratios, n=10, method="inclusive")
    error = statistics.fmean(abs(1 / ratio - 1) for ratio in ratios)
    return Fit(
        collective=collective,
        alpha_s=alpha,
        bytes_per_s=1.0 / slope,
        left_out_mape=error,
        p10=cuts[0],
        p90=cuts[-1],
    )


def busbw_seconds(collective: str, size: int, busbw: float, ranks: int) -> float:
    """Time of one call from its bus bandwidth in bytes/s."""
    return size * FACTORS[collective](ranks) / busbw
