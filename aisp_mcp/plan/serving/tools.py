"""Plans for serving a model: memory, speed, formats, flags."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.plan.records import Count, Planned, Positive, Size, Tokens
from aisp_mcp.plan.serving.deployment import ServingPlan
from aisp_mcp.plan.serving.fits import FitAnswer
from aisp_mcp.plan.serving.kv_cache import KvAnswer
from aisp_mcp.plan.serving.quantization import Formats
from aisp_mcp.plan.serving.wishes import VllmParams
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool

KvDtype = Literal["bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"]


@tool(cli="inference vllm", effect=READS, cost=MS, next=("aisp_inference_quantization", "aisp_cost_estimate"))
def aisp_inference_vllm(p: VllmParams, ctx: Context) -> Planned[ServingPlan]:
    """Plan a server: layout within latency limits, tokens/s, TTFT, cache, cost, command."""
    from aisp_mcp.plan import own
    from aisp_mcp.plan.serving import deployment, wishes

    wish = wishes.wish(p, ctx)
    result = deployment.plan(wish)
    rate = result.answer.rate
    values = {"rate.tpot_s": rate.tpot_s, "rate.ttft_s": rate.ttft_s}
    corrected = own.beside(ctx, p.model, wish.facts.sku, values, rate.concurrency * rate.replicas)
    return result.model_copy(update={"answer": result.answer.model_copy(update={"calibrated": corrected})})


class FitParams(Params):
    model: str
    gpus: Count = 1
    gpu: str | None = None
    weights: str | None = None
    prompt: Tokens = 1024
    output: Tokens = 256


@tool(cli="fit", effect=READS, cost=MS, next=("aisp_inference_vllm", "aisp_inference_quantization"), listed="default")
def aisp_fit(p: FitParams, ctx: Context) -> Planned[FitAnswer]:
    """Say whether a model fits on these GPUs, how fast it would be, and how many it needs."""
    from aisp_mcp.plan.serving import fits, wishes

    return fits.fit(wishes.wish(wishes.VllmParams(**p.model_dump()), ctx))


class QuantizationParams(Params):
    model: str | None = None
    architecture: dict[str, Any] | None = None
    gpus: Count | None = None
    gpu: str | None = None
    prompt: Tokens = 1024
    output: Tokens = 256


@tool(cli="inference quantization", effect=READS, cost=MS, next=("aisp_inference_vllm", "aisp_hw_tc"))
def aisp_inference_quantization(p: QuantizationParams, ctx: Context) -> Planned[Formats]:
    """Compare weight formats on a GPU: memory, predicted speed, accuracy risk."""
    from aisp_mcp.plan.serving import quantization, wishes

    asked = p.model_dump(exclude={"model", "gpus"})
    return quantization.compare(wishes.wish(wishes.VllmParams(model=p.model or "", **asked), ctx), p.gpus)


class KvParams(Params):
    model: str | None = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    latent: Count | None = Field(default=None, description="MLA: rank + rope.")
    tokens: Tokens = 4096
    batch: Size = 1
    dtype: KvDtype = "bf16"
    budget_gib: Positive | None = None
    blocks: Count | None = Field(default=None, description="Of 16 tokens.")


@tool(cli="inference kv-cache", effect=READS, cost=MS, next=("aisp_inference_vllm",))
def aisp_inference_kv_cache(p: KvParams, ctx: Context) -> Planned[KvAnswer]:
    """Count the bytes of a KV cache exactly: GQA, MLA, sliding window, hybrid, quantised."""
    from aisp_mcp.errors import UsageError
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.serving import kv_cache

    shape = {name: getattr(p, name) for name in ("hidden", "heads", "kv_heads", "head_dim", "latent")}
    if p.model is not None:
        if p.layers is not None or any(shape.values()):
            raise UsageError("TWO_SHAPES", "A model has its own numbers.", "Give model, or the numbers, not both.")
        answer = kv_cache.kv_answer(lookup.architecture(p.model), p.tokens, p.batch, p.dtype)
    else:
        arch, kind = kv_cache.plain(p.layers, **shape)
        answer = kv_cache.kv_answer(arch, p.tokens, p.batch, p.dtype, kind)
    return kv_cache.with_capacity(answer, p.tokens, p.budget_gib, p.blocks)
