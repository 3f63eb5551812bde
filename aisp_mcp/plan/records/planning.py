"""Rows of the planners' data: prices, weight formats, techniques, engine flags."""

from __future__ import annotations

import datetime
from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record


class Price(Record):
    """One list price. as_of: the date of the provider's page; checked: the date on which that source was read."""

    sku: str
    provider: str
    kind: Literal["on-demand", "spot"]
    usd_per_gpu_hour: float
    as_of: datetime.date
    checked: datetime.date
    source: str


class WeightFormat(Record):
    """Storage and arithmetic of weights. needs: lowest compute capability with hardware for the product."""

    name: str
    bytes: float = Field(description="Per parameter, scales included.")
    compute: str
    needs: str
    vllm: str | None = Field(description="Value of --quantization, where the engine quantises or must be told.")
    vendor: Literal["nvidia", "amd"] | None = Field(default=None, description="None: of either vendor.")
    checkpoint: bool = Field(default=False, description="Needs weights quantised beforehand.")
    risk: str
    source: str
    checked: str
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")


class Needs(Record):
    """Requirements of a technique: compute capability and number of GPUs."""

    cc: str | None = None
    gpus: int = 1


class Technique(Record):
    """effect: published factor on the goal's figure, lowest to highest; below 1 is a cost."""

    name: str
    goals: list[str]
    workload: Literal["any", "training", "inference"]
    effect: tuple[float, float]
    effort_days: float
    needs: Needs
    conflicts: list[str]
    what: str
    source: str
    checked: str
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")
    target: str | None = Field(default=None, description="Benchmark pair of this product that measures it.")


class Engine(Record):
    """Flags, weight formats and overheads of a serving engine."""

    flags: list[str]
    flags_source: str
    checked: str
    utilization: float
    block_tokens: int
    overhead_bytes: int
    per_layer_s: float
    formats: list[WeightFormat]
    published: dict[str, list[str]] = Field(description="Model to the formats of its makers, best first.")
