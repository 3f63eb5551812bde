"""Fractions of a datasheet's rates that training steps reach, fitted to published and recorded steps."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.plan.records.calibration import Ratio
from aisp_mcp.plan.records.plan import Source
from aisp_mcp.records import Record


class TrainingShares(Record):
    """Constants for every GPU of the table unless a row of `architectures` overrides them."""

    peak: dict[str, float] = Field(description="Type of the products to the reached share of its dense peak.")
    attention: float = Field(description="Share of the bf16 peak that attention reaches.")
    activation_passes: float
    loss_passes: float
    contention: float = Field(
        description="Slow-down by communication overlapped with compute, as a share of its own time."
    )
    bandwidth: float = Field(description="Share of memory bandwidth in an optimizer update.")
    link_share: float
    network_share: float
    network_bytes_s: float = Field(description="Per GPU and direction between nodes, if the caller gives none.")
    collective_s: float = Field(description="Latency of a small collective inside a node.")
    network_collective_s: float = Field(description="What a collective over nodes takes in addition.")
    workspace_bytes: int


class TrainingBand(Record):
    """Measured over predicted time and memory, and the rows that they come from."""

    architectures: list[str]
    dtypes: list[str]
    step: Ratio
    experts: Ratio | None = Field(default=None, description="Of models with routed experts, where it differs.")

    def of(self, experts: bool) -> Ratio:
        """The ratio for a model with or without routed experts."""
        return self.experts if experts and self.experts is not None else self.step


class TrainingCalibration(Record):
    """Shares and bands; a GPU and type without a band get no times."""

    shares: TrainingShares
    steps: list[TrainingBand]
    memory: Ratio
    sources: list[Source]
