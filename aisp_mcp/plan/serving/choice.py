"""Choose a layout: predict the rate of every one that fits and meets the limits of the scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pydantic import Field

from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Engine, ServingShares
from aisp_mcp.plan.serving import model, rate
from aisp_mcp.plan.serving.rate import NODE, Layout, Served, Step
from aisp_mcp.plan.serving.workload import Lengths, Scenario
from aisp_mcp.records import Record

SIZES = (1, 2, 4, 8, 16)
MOST_GPUS = 64  # of which the least number is sought
MISSED = math.log(100)  # of the 99th percentile


class CallerLimits(Record):
    """Limits fixed by the caller. ttft_s and tpot_s apply to the 99th percentile."""

    scenario: Scenario
    ttft_s: float | None = None
    tpot_s: float | None = None
    tensor: int | None = None
    pipeline: int | None = None
    concurrency: int | None = Field(default=None, description="Over all replicas.")
    batch: int | None = Field(default=None, description="Per replica.")
    cache_bytes: int | None = None

    def engine(self, shares: ServingShares, layout: Layout) -> float:
        """Sequences that a replica runs at once: with attention by data, each GPU has a scheduler, else each node."""
        return float(shares.most_sequences * (layout.tensor if layout.data_attention else max(1, layout.gpus // NODE)))


class Rate(Record):
    """Rate of one layout over all GPUs. Tokens are output tokens; prefill of the prompts is included."""

    layout: Layout
    replicas: int
    concurrency: int = Field(description="Sequences in flight per replica.")
    tokens_per_s: float = Field(description="Output tokens per second, all replicas.")
    tokens_per_s_per_gpu: float
    requests_per_s: float
    ttft_s: float = Field(description="Mean, of a request that is admitted at once; see first_token of the shares.")
    tpot_s: float = Field(description="Mean time per output token after the first.")
    utilization: float = Field(description="Rate over the rate without latency limits at the same concurrency.")
    limit: str = Field(description="What keeps the concurrency from being larger.")
    step: Step


def rates(
    served: Served, gpus: int, lengths: Lengths, limits: CallerLimits, shares: ServingShares, engine: Engine
) -> list[Rate]:
    """Every layout that has room for the weights and a sequence and meets the limits, fastest first."""
    return _of(served, gpus, lengths, limits, shares, engine, NODE) or _of(
        served, gpus, lengths, limits, shares, engine, gpus
    )


def _of(
    served: Served,
    gpus: int,
    lengths: Lengths,
    limits: CallerLimits,
    shares: ServingShares,
    engine: Engine,
    most_gpus: int,
) -> list[Rate]:
    """Replicas of at most that many GPUs: stages over nodes only where a node is too small."""
    rows = []
    for layout in layouts(served, gpus, limits):
        if layout.gpus > most_gpus:
            continue
        # Engines that admit more sequences than the cache can complete must preempt some of them.
        whole = _room(served, layout, lengths, limits, engine)
        if whole >= 1:
            row = _rate(served, gpus, layout, whole, lengths, limits, shares, engine)
            rows += [row] if row else []
    return sorted(rows, key=lambda row: -row.tokens_per_s)


def _room(served: Served, layout: Layout, lengths: Lengths, limits: CallerLimits, engine: Engine) -> float:
    """Whole sequences of the longest length that a replica's cache holds; below 1 if the model does not fit."""
    budget = limits.cache_bytes or model.cache_budget(served, layout, engine)
    return budget / model.sequence_bytes(served, layout, lengths.longest, engine)


def least(served: Served, lengths: Lengths, limits: CallerLimits, engine: Engine) -> int | None:
    """The least power of two of GPUs on which a layout holds the model and a sequence; None above MOST_GPUS."""
    sizes = (2**power for power in range(MOST_GPUS.bit_length()))
    return next(
        (
            gpus
            for gpus in sizes
            if any(_room(served, layout, lengths, limits, engine) >= 1 for layout in layouts(served, gpus, limits))
        ),
        None,
    )


def layouts(served: Served, gpus: int, limits: CallerLimits) -> Iterator[Layout]:
    """Sizes of tensor and pipeline parallelism whose replicas fill the GPUs; with experts, attention also by data."""
    arch = served.arch
    tensors = [limits.tensor] if limits.tensor else SIZES
    tensors = [n for n in tensors if _divides(arch, n)]
    for tensor in tensors:
        for pipeline in [limits.pipeline] if limits.pipeline else SIZES:
            if tensor * pipeline > gpus or gpus % (tensor * pipeline) or pipeline > arch.layers:
                continue
            yield Layout(tensor=tensor, pipeline=pipeline)
            if 1 < tensor <= NODE and arch.mlp.experts:
                yield Layout(tensor=tensor, pipeline=pipeline, data_attention=True)
    if arch.mlp.experts and limits.pipeline in (None, 1):
        yield from (
            Layout(tensor=size, data_attention=True)
            for size in _spread(arch.mlp.experts.count, gpus)
            if limits.tensor in (None, size)
        )


def _divides(arch: Architecture, tensor: int) -> bool:
    """Engines give every rank as many query heads, and as many key-value heads or a copy of one."""
    a = arch.attention
    even = a.latent is not None or a.kv_heads % tensor == 0 or tensor % a.kv_heads == 0
    return a.heads % tensor == 0 and even


def _spread(experts: int, gpus: int) -> list[int]:
    """GPUs of several nodes over which experts can be spread, each with its own sequences: all, or halves of that."""
    sizes = [gpus]
    while sizes[-1] % 2 == 0 and sizes[-1] // 2 > NODE:
        sizes.append(sizes[-1] // 2)
    return [size for size in sizes if NODE < size <= experts]


def _rate(
    served: Served,
    gpus: int,
    layout: Layout,
    most: float,
    lengths: Lengths,
    limits: CallerLimits,
    shares: ServingShares,
    engine: Engine,
) -> Rate | None:
    replicas = gpus // layout.gpus

    def at(concurrency: float) -> Step:
        return rate.step(served, layout, lengths, concurrency, shares, engine)

    concurrency, limit = _concurrency(most, layout, limits, shares, at, served.accepted, replicas)
    if concurrency is None:
        return None
    now = at(concurrency)
    each = concurrency * served.accepted / now.total  # output tokens per second of a replica
    alone = rate.prefill_s(served, layout, lengths, shares, engine)
    first = alone + now.total
    used, wait = _arrivals(alone, first, alone * each / lengths.output, replicas, limits, shares)
    if used <= 0:
        return None
    total = each * used * replicas
    return Rate(
        layout=layout,
        replicas=replicas,
        concurrency=math.floor(concurrency),
        tokens_per_s=total,
        tokens_per_s_per_gpu=total / gpus,
        requests_per_s=total / lengths.output,
        ttft_s=_first_token(served, layout, lengths, concurrency, alone, limits, shares, engine) + wait,
        tpot_s=rate.time_per_output_token(now.total, served),
        utilization=used,
        limit=limit,
        step=now,
    )


def _first_token(
    served: Served,
    layout: Layout,
    lengths: Lengths,
    concurrency: float,
    alone: float,
    limits: CallerLimits,
    shares: ServingShares,
    engine: Engine,
) -> float:
    """From request to first token, without the wait for arrivals. Independent of the output's length.

    alone: seconds to prefill the prompt on an idle replica. Under random arrivals, prompts before it are the wait.
    """
    decoding = served.model_copy(update={"prefix_hit": 1.0})
    prompts = lengths.model_copy(update={"context": lengths.prompt})
    step = rate.step(decoding, layout, prompts, concurrency, shares, engine).total
    fit = shares.first_token[engine.name]
    many = max(1.0, concurrency)
    others = 1 - 1 / many
    batched = fit.batched * others + fit.waiting * many if limits.scenario == "offline" and many > 1 else 0.0
    return fit.overhead_s + (fit.polling_s + fit.steps * step) * others + alone * (1 + batched)


def _concurrency(
    most: float,
    layout: Layout,
    limits: CallerLimits,
    shares: ServingShares,
    at: Callable[[float], Step],
    accepted: float,
    replicas: int,
) -> tuple[float | None, str]:
    """Largest number of sequences in flight, and its limiting factor; None if even one misses the time per token."""
    engine = limits.engine(shares, layout)
    bound, limit = (most, "cache") if most < engine else (engine, "engine")
    fixed = limits.batch or (limits.concurrency / replicas if limits.concurrency else None)
    if fixed is not None:
        if fixed > most:
            return None, "cache"
        bound, limit = float(fixed), "given"
    if limits.tpot_s is None:
        return bound, limit
    target = limits.tpot_s * accepted / shares.tpot_headroom
    if at(bound).total <= target:
        return bound, limit
    low, high = 1.0, bound
    if at(low).total > target:
        return None, "time per token"
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).total <= target else (low, middle)
    return low, "time per token"


def _arrivals(
    alone: float, first: float, share: float, replicas: int, limits: CallerLimits, shares: ServingShares
) -> tuple[float, float]:
    """Utilisation at which 99 of 100 prompts start within the limit, and the mean wait.

    alone: seconds to prefill one prompt on an idle replica; first: including the step that yields its token; share:
    part of a replica's time at full rate that prefills take. Replicas share a queue of Poisson arrivals; the tail of
    the wait falls as exp(-2 n (1 - u) t / (u alone)).
    """
    if limits.scenario == "offline":
        return 1.0, 0.0
    used = shares.arrival_share[limits.scenario]
    share = min(share, 1.0)
    if limits.ttft_s is not None:
        slack = limits.ttft_s - first
        if slack <= 0:
            return 0.0, 0.0
        used *= min(1.0, 1 / (1 + MISSED * alone / (2 * replicas * slack)) / share)
    busy = min(used * share, 0.99)
    return used, alone * busy / (2 * replicas * (1 - busy))
