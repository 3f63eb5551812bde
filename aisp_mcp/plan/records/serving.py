"""Fractions of a GPU's rates that serving engines reach, with the data that each was fitted to."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.plan.records.calibration import Ratio
from aisp_mcp.plan.records.plan import Source
from aisp_mcp.records import Record


class MatmulShare(Record):
    """Best measured dense matrix product over the datasheet's peak, by dtype; not derived from serving results."""

    architecture: str
    sku: str | None = Field(default=None, description="Where a GPU differs from others of its architecture.")
    dtype: str
    share: float
    source: str
    checked: str


class EngineFactor(Record):
    """Fraction of the best matrix product that a serving engine sustains, fitted to published results of one
    architecture.
    """

    architecture: str
    dtypes: list[str]
    factor: float
    basis: str


class ServingShares(Record):
    """Constants of the rate model; see docs/planners.md for how each was fitted."""

    default_matmul: dict[int, float] = Field(description="Bits, 16 or 8 and fewer, to the mean of the listed products.")
    default_factor: float = Field(description="Of an architecture without results: the mean of the others.")
    expert_loss: float = Field(description="Extra time of a step with routed experts: small products, uneven load.")
    bandwidth: float
    attention: float = Field(description="Of the bf16 peak, for attention.")
    link: float
    network: float = Field(description="Of the adapters between nodes.")
    expert_layer_s: float = Field(description="Dispatch and combine of one layer of experts over several GPUs.")
    pipeline_loss: float = Field(description="Extra time of a step with several stages.")
    tpot_headroom: float = Field(description="99th percentile of time per token over its mean.")
    arrival_share: dict[str, float] = Field(description="Scenario to what arrivals at random leave of the rate.")
    chunk_tokens: int
    most_sequences: int
    matmul: list[MatmulShare]
    factors: list[EngineFactor]
    bands: dict[str, Ratio]
    sources: list[Source]
