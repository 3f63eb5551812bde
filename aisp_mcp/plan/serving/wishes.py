"""Parameters of a serving plan, and the deployment that they ask for."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import kv, lookup
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Count, Positive, Source, Tokens, UsdPerHour
from aisp_mcp.plan.savings import estimates
from aisp_mcp.plan.serving.choice import CallerLimits
from aisp_mcp.plan.serving.deployment import Decoding, Wish
from aisp_mcp.plan.serving.workload import Scenario, lengths
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context


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
    cache_tokens: Count | None = Field(default=None, description="Cache per replica.")
    draft: int = Field(default=0, ge=0, le=16)
    acceptance: float = Field(default=0.7, ge=0, lt=1)
    draft_cost: float = Field(default=0.0, ge=0, le=10)
    engine: Literal["vllm", "sglang"] = "vllm"


class VllmParams(LayoutParams, WorkloadParams):
    """Model, GPUs, goal and price."""

    model: str
    architecture: dict[str, Any] | None = None
    gpus: Count = 1
    gpu: str | None = None
    goal: Literal["throughput", "latency"] = "throughput"
    usd_per_gpu_hour: UsdPerHour | None = None
    provider: str | None = None


TTFT_S = {"server": 2.0, "interactive": 0.5}
TPOT_S = {"server": 0.2, "interactive": 0.04}


def wish(p: VllmParams, ctx: Context) -> Wish:
    """Facts and limits for the parameters. Raises UsageError OFFLINE_LIMITS, TWO_BATCHES, and as the look-ups."""
    arch, facts = lookup.architecture(p.model, p.architecture), lookup.gpu(p.gpu)
    usd, source = _price(p, ctx, facts.sku)
    return Wish(
        arch=arch,
        facts=facts,
        gpus=p.gpus,
        lengths=lengths(p.prompt, p.output, p.spread, p.lengths),
        limits=_limits(p, arch),
        goal=p.goal,
        weights=p.weights,
        kv_dtype=p.kv_dtype,
        model=arch.checkpoint or p.model,
        decoding=Decoding(p.prefix_hit, p.draft, p.acceptance, p.draft_cost, p.chunk),
        engine=p.engine,
        usd_per_gpu_hour=usd,
        price_source=source,
    )


def _limits(p: VllmParams, arch: Architecture) -> CallerLimits:
    if p.scenario == "offline" and p.ttft_s is not None:
        raise UsageError("OFFLINE_LIMITS", "ttft_s has no meaning offline: all requests wait.", "Use scenario=server.")
    if p.batch is not None and p.concurrency is not None:
        raise UsageError("TWO_BATCHES", "batch and concurrency fix the same number.", "Give one of them.")
    size = kv.ELEMENT[p.kv_dtype or "fp8"]
    cache = int(p.cache_tokens * arch.attention.layers * kv.per_layer(arch) * size) if p.cache_tokens else None
    return CallerLimits(
        scenario=p.scenario,
        ttft_s=p.ttft_s or TTFT_S.get(p.scenario),
        tpot_s=p.tpot_s or TPOT_S.get(p.scenario),
        tensor=p.tensor,
        pipeline=p.pipeline,
        concurrency=p.concurrency,
        batch=p.batch or (1 if p.goal == "latency" and p.concurrency is None else None),
        cache_bytes=cache,
    )


def _price(p: VllmParams, ctx: Context, sku: str) -> tuple[float | None, Source | None]:
    if p.usd_per_gpu_hour is not None or p.provider is None:
        return p.usd_per_gpu_hour, None
    row = estimates.price(ctx, sku, spot=False, allow_old=False, provider=p.provider)
    return row.usd_per_gpu_hour, Source(what=f"{row.provider}: {row.source}", as_of=row.as_of.isoformat())
