"""Parameters of a serving plan, grouped by what they describe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.plan.bounds import Count, Positive, Tokens
from aisp_mcp.plan.serving.workload import Scenario
from aisp_mcp.records import Params


class WorkloadParams(Params):
    """Requests and their latency limits."""

    prompt: Tokens = 1024
    output: Tokens = 256
    spread: float = Field(default=0.0, ge=0, le=5, description="Deviation / mean of both.")
    lengths: str | None = Field(default=None, description="prompt:output[:weight],… instead.")
    scenario: Scenario = "offline"
    ttft_s: Positive | None = Field(default=None, description="99th percentile, as tpot_s.")
    tpot_s: Positive | None = None
    chunk: Count | None = Field(default=None, description="Prompt tokens per step.")
    prefix_hit: float = Field(default=0.0, ge=0, lt=1)


class LayoutParams(Params):
    """Values that the caller fixes instead of leaving them to the planner."""

    weights: str | None = None
    kv_dtype: Literal["bf16", "fp8"] | None = None
    tensor: Count | None = None
    pipeline: Count | None = None
    concurrency: Count | None = Field(default=None, description="All replicas.")
    batch: Count | None = Field(default=None, description="Per replica.")
    cache_tokens: Count | None = Field(default=None, description="Cache per replica; default: what fits.")
    draft: int = Field(default=0, ge=0, le=16)
    acceptance: float = Field(default=0.7, ge=0, lt=1)
    draft_cost: float = Field(default=0.0, ge=0, le=10)


class VllmParams(LayoutParams, WorkloadParams):
    """Model, GPUs, goal and price."""

    model: str
    architecture: dict[str, Any] | None = None
    gpus: Count = 1
    gpu: str | None = None
    goal: Literal["throughput", "latency"] = "throughput"
    usd_per_gpu_hour: Positive | None = None
    provider: str | None = None
