"""Fractions of a datasheet's rates that real work reaches, fitted to recorded measurements."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.plan.records.plan import Source
from aisp_mcp.records import Record


class GemmShares(Record):
    """time = overhead + (compute^sharpness + memory^sharpness)^(1/sharpness), each at its share of the datasheet."""

    peak: float
    bandwidth: float
    overhead_s: float
    sharpness: float


class StepShares(Record):
    """Training: products at `peak` of the datasheet, plus passes over stored activations and fp32 logits."""

    peak: float
    activation_passes: float
    loss_passes: float


class Ratio(Record):
    """Measured over predicted: tenth and ninetieth percentile on data that were not used for fitting."""

    p10: float
    p90: float
    basis: str


class Calibration(Record):
    """Valid only for the named architectures: for others, a planner gives no times."""

    architectures: list[str]
    gemm: GemmShares
    step: StepShares
    link_share: float = Field(description="Of the link's rate, as bus bandwidth of a 64 MiB all-reduce.")
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    collective_s: float = Field(description="Latency of a small all-reduce inside a node.")
    workspace_bytes: int
    bands: dict[str, Ratio]
    sources: list[Source]
