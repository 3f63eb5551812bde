"""Prefill and decode on separate GPUs: the numbers that balance, and the cost of the cache transfer."""

from __future__ import annotations

import math

from pydantic import Field

from aisp_mcp.plan import kv
from aisp_mcp.plan.records.planning import Engine
from aisp_mcp.plan.records.serving import ServingShares
from aisp_mcp.plan.serving import rate
from aisp_mcp.plan.serving.choice import Rate
from aisp_mcp.plan.serving.rate import NETWORK, Served
from aisp_mcp.plan.serving.workload import Lengths
from aisp_mcp.records import Record


class Disaggregation(Record):
    """Ratio of replicas at which neither kind waits, with the transfer between them."""

    prefill_replicas_per_decode: float
    tokens_per_s_per_gpu: float = Field(description="Output tokens over the GPUs of both kinds.")
    tpot_s: float = Field(description="Of decode replicas that no prefill interrupts.")
    transfer_bytes: int = Field(description="Cache of one prompt.")
    transfer_s: float
    transfer_share_of_ttft: float


def split(served: Served, best: Rate, lengths: Lengths, shares: ServingShares, engine: Engine) -> Disaggregation:
    """Decode replicas like the chosen one but without prompts; prefill replicas take the prompts one by one."""
    layout = best.layout
    decoding = served.model_copy(update={"prefix_hit": 1.0})
    concurrency = max(1, best.concurrency)
    step = rate.step(decoding, layout, lengths, concurrency, shares, engine).total
    each = concurrency * served.accepted / step
    first = rate.prefill_s(served, layout, lengths, shares, engine)
    ratio = each / lengths.output * first / layout.pipeline
    size = kv.sequence_bytes(served.arch, math.ceil(lengths.prompt), served.kv_dtype)
    seconds = size / (NETWORK * layout.gpus)
    return Disaggregation(
        prefill_replicas_per_decode=ratio,
        tokens_per_s_per_gpu=each / (1 + ratio) / layout.gpus,
        tpot_s=step / served.accepted,
        transfer_bytes=size,
        transfer_s=seconds,
        transfer_share_of_ttft=seconds / (first + seconds),
    )
