"""Plan a deployment: the layout with the best predicted rate, its memory, latencies, cost and command.

Prefill and decode may run on separate GPUs: the numbers that balance, and the cost of the cache transfer.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import kv, lookup
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.own import Calibrated
from aisp_mcp.plan.records import Band, Engine, Planned, Ratio, ServingShares, Source, WeightFormat
from aisp_mcp.plan.serving import choice, formats, model, rate
from aisp_mcp.plan.serving.choice import CallerLimits, Rate
from aisp_mcp.plan.serving.rate import NETWORK, Served
from aisp_mcp.plan.serving.workload import Lengths
from aisp_mcp.records import Record

ALTERNATIVES = 5
DEFINITIONS = {
    "tokens_per_s_per_gpu": "output tokens per second / GPUs; the time to prefill the prompts is included",
    "tpot_s": "mean time per output token without the first",
    "ttft_s": "mean, request to first token: server, prefill with prompts beside it, steps; no queue of a full server",
    "concurrency": "sequences in flight per replica; fit.concurrency: whole sequences of the longest length",
    "offline": "all requests at once; server and interactive: random arrivals, limits for 99 of 100 requests",
}


@dataclass(frozen=True)
class Decoding:
    """Prefix cache, chunks of prefill and speculation.

    prefix_hit: share of prompt tokens in the cache; draft_cost: time of a drafted token over that of a step.
    """

    prefix_hit: float = 0.0
    draft: int = 0
    acceptance: float = 0.0
    draft_cost: float = 0.0
    chunk: int | None = None

    @property
    def expected(self) -> float:
        """Tokens that a step yields: those accepted in a row, and one more."""
        return (1 - self.acceptance ** (self.draft + 1)) / (1 - self.acceptance) if self.draft else 1.0


@dataclass(frozen=True)
class Wish:
    """Model, GPUs and workload of a deployment. weights None: as published, else bf16, else fp8 if that fits."""

    arch: Architecture
    facts: GpuFacts
    gpus: int
    lengths: Lengths
    limits: CallerLimits
    goal: str
    weights: str | None
    kv_dtype: str | None
    model: str
    decoding: Decoding
    engine: str = "vllm"
    usd_per_gpu_hour: float | None = None
    price_source: Source | None = None


class ServingPlan(Record):
    """The chosen layout: the headline, then its rates and memory, and the next best layouts."""

    headline: str
    weights: str = Field(description="Format that was chosen.")
    rate: Rate
    dominates: str = Field(description="Largest part of the time of a step, and what would change the plan.")
    usd_per_million_tokens: float | None = Field(
        default=None, description="Output tokens, at the price given or listed."
    )
    command: str
    fit: model.Fit
    cache: kv.KvCache = Field(description="Of one sequence of prompt + output tokens.")
    alternatives: list[Rate]
    disaggregated: Disaggregation | None = None
    calibrated: list[Calibrated] = Field(default=[], description="Figures corrected by own runs of this model and GPU.")


def plan(wish: Wish) -> Planned[ServingPlan]:
    """The fastest layout that fits and meets the limits; for the goal latency, the one with the shortest token time.

    Stages are chosen where they gain more than the band, or the model does not fit without.

    Raises UsageError CONTEXT_LIMIT, DOES_NOT_FIT, LIMITS_MISSED, NO_FORMAT, NO_LAYOUT, Unavailable NO_PEAK.
    """
    lookup.require_context(wish.arch, wish.lengths.longest)
    shares, engine = knowledge.serving_shares(), knowledge.engine(wish.engine)
    if wish.decoding.chunk:
        shares = shares.model_copy(update={"chunk_tokens": wish.decoding.chunk})
    served, rates = _best(wish, shares, engine)
    best = min(rates, key=lambda row: row.tpot_s) if wish.goal == "latency" else _simplest(wish, served, rates, shares)
    name = shlex.quote(wish.model)
    bands = _bands(wish, served, best, shares)
    return Planned[ServingPlan](
        answer=ServingPlan(
            headline=_headline(wish, served, best, bands),
            weights=served.weights.name,
            rate=best,
            dominates=_dominates(best),
            usd_per_million_tokens=_cost(wish, best),
            command=f"{engine.start.format(model=name)} {' '.join(_words(wish, served, best, engine))}",
            fit=model.fit(served, best.layout, wish.lengths.longest, engine),
            cache=kv.cache(wish.arch, wish.lengths.longest, 1, served.kv_dtype),
            alternatives=[row for row in rates if row is not best][:ALTERNATIVES],
            disaggregated=split(served, best, wish.lengths, shares, engine),
        ),
        assumptions=_assumptions(wish, served, best, engine),
        band=bands,
        not_modelled=[
            "Tokenisation, sampling parameters, the network to the client, the tail of a finite set of requests.",
            "Engines differ: the shares are those of tuned submissions; an untuned server is slower.",
        ],
        definitions=DEFINITIONS,
        check_here=f"{engine.measure} --model {name} --dataset-name random "
        f"--random-input-len {round(wish.lengths.prompt)} --random-output-len {round(wish.lengths.output)} "
        f"--max-concurrency {best.concurrency * best.replicas}",
        sources=_sources(wish, shares, engine),
    )


def alone(wish: Wish, served: ServingPlan) -> Rate:
    """The same layout and format with one sequence at a time."""
    layout = served.rate.layout
    limits = CallerLimits(scenario="offline", tensor=layout.tensor, pipeline=layout.pipeline, batch=1)
    return plan(replace(wish, limits=limits, weights=served.weights)).answer.rate


def _simplest(wish: Wish, served: Served, rates: list[Rate], shares: ServingShares) -> Rate:
    """The fastest of those with the fewest stages that the fastest of all does not beat by more than its band."""
    least = rates[0].tokens_per_s / _ratio(wish, served, rates[0], shares).p90
    return min((row for row in rates if row.tokens_per_s >= least), key=lambda row: row.layout.pipeline)


def _sources(wish: Wish, shares: ServingShares, engine: Engine) -> list[Source]:
    all_sources = [*lookup.sources(wish.facts, wish.arch), *shares.sources]
    all_sources.append(Source(what=engine.source, as_of=engine.checked))
    return [*all_sources, *([wish.price_source] if wish.price_source else [])]


def _best(wish: Wish, shares: ServingShares, engine: Engine) -> tuple[Served, list[Rate]]:
    """Rates in the first weight format that fits."""
    names, tried = formats.preferred(wish.arch, wish.facts, wish.weights), []
    for weights in names:
        served = serve(wish, weights)
        rates = choice.rates(served, wish.gpus, wish.lengths, wish.limits, shares, engine)
        if rates:
            return served, rates
        tried.append(served)
    raise _refused(wish, tried[-1], shares, engine)


def serve(wish: Wish, weights: WeightFormat) -> Served:
    """The wished model in that format. Raises Unavailable NO_PEAK."""
    lookup.require_dtype(wish.facts, [weights.compute, "bf16"])
    small = weights.compute in ("fp8", "fp4") and "fp8" in wish.facts.peak
    return Served(
        arch=wish.arch,
        weights=weights,
        kv_dtype=wish.kv_dtype or ("fp8" if small else "bf16"),
        facts=wish.facts,
        prefix_hit=wish.decoding.prefix_hit,
        accepted=wish.decoding.expected,
        drafting=wish.decoding.draft * wish.decoding.draft_cost,
        drafted=float(wish.decoding.draft),
    )


def _refused(wish: Wish, served: Served, shares: ServingShares, engine: Engine) -> UsageError:
    """The rule that excluded every layout, as an error."""
    free = CallerLimits(scenario="offline", tensor=wish.limits.tensor, pipeline=wish.limits.pipeline)
    if not list(choice.layouts(served, wish.gpus, wish.limits)):
        return UsageError(
            "NO_LAYOUT",
            f"Tensor {wish.limits.tensor or 'of any size'} and pipeline {wish.limits.pipeline or 'of any size'} do not "
            f"divide {wish.gpus} GPUs, {wish.arch.attention.heads} heads and {wish.arch.attention.kv_heads} of keys.",
            "Leave one of them out: every layout is then tried.",
        )
    possible = choice.rates(served, wish.gpus, wish.lengths, free, shares, engine)
    if possible:
        return UsageError(
            "LIMITS_MISSED",
            f"No layout over {wish.gpus} x {wish.facts.sku} meets {_missed(wish, served, possible, shares, engine)}.",
            "Allow a longer ttft_s or tpot_s, fewer sequences, or more GPUs.",
        )
    need = model.weight_bytes(wish.arch, served.weights) / model.GIB
    return UsageError(
        "DOES_NOT_FIT",
        f"{wish.arch.name} needs {need:.1f} GiB of weights in {served.weights.name} and a sequence of cache; no layout "
        f"over {wish.gpus} x {wish.facts.sku} holds them.",
        "aisp inference quantization compares formats; or use more GPUs or a shorter context.",
    )


def _missed(wish: Wish, served: Served, possible: list[Rate], shares: ServingShares, engine: Engine) -> str:
    """The limits that one sequence alone misses, by how much, or the number of sequences that fits."""
    limits, missed = wish.limits, []
    alone = CallerLimits(scenario="offline", tensor=limits.tensor, pipeline=limits.pipeline, batch=1)
    rows = choice.rates(served, wish.gpus, wish.lengths, alone, shares, engine)
    token = min(row.tpot_s for row in rows) * shares.tpot_headroom
    first = min(rate.prefill_s(served, row.layout, wish.lengths, shares, engine) + row.step.total for row in rows)
    if limits.tpot_s is not None and limits.tpot_s < token:
        missed.append(
            f"tpot_s {limits.tpot_s:g}: one sequence alone takes {token:.3g} s in 99 of 100 requests, "
            f"{shares.tpot_headroom:g} times the mean: {token / limits.tpot_s:.2g} times the limit, and the least "
            "that can be promised"
        )
    if limits.ttft_s is not None and limits.ttft_s <= first:
        missed.append(
            f"ttft_s {limits.ttft_s:g}: on idle GPUs a prompt takes {first:.3g} s: {first / limits.ttft_s:.2g} times"
        )
    most = max(row.concurrency * row.replicas for row in possible)
    asked = limits.batch or limits.concurrency
    if asked is not None and asked > most:
        missed.append(f"{asked:,} sequences at once: at most {most:,} fit")
    return "; ".join(missed) or f"all limits together: without them {most:,} sequences fit"


def _servers(wish: Wish, best: Rate) -> tuple[int, int]:
    """Replicas of one server, which are those of one host, and the hosts over which a replica is spread.

    With attention by data a server has one replica: engines spread the experts over all GPUs that they are given.
    """
    host, layout = lookup.host_gpus(wish.facts), best.layout
    if layout.data_attention or layout.gpus > host:
        return 1, -(-layout.gpus // host)
    return min(best.replicas, host // layout.gpus), 1


def _words(wish: Wish, served: Served, best: Rate, engine: Engine) -> list[str]:
    """Options of the chosen layout; what an engine has no option for, it decides itself."""
    layout, facts = best.layout, wish.facts
    by_data = layout.tensor if layout.data_attention else 1
    replicas, hosts = _servers(wish, best)
    tensor, sequences, memory = layout.tensor, best.concurrency, engine.utilization
    if "attention" not in engine.options:  # vLLM: every GPU is a replica of the attention, experts are shared
        tensor, replicas, sequences = tensor // by_data, replicas * by_data, math.ceil(sequences / by_data)
    else:  # SGLang's share holds weights and cache only
        memory -= engine.overhead_bytes / model.memory_bytes(facts)
    values = {
        "tensor": tensor,
        "longest": wish.lengths.longest,
        "sequences": max(1, sequences),
        "memory": memory,
        "replicas": replicas if replicas > 1 else None,
        "attention": by_data if by_data > 1 else None,
        "experts": layout.tensor if wish.arch.mlp.experts is not None and layout.tensor > 1 else None,
        # Engines read the format of a quantised checkpoint from its configuration.
        "weights": served.weights.vllm if wish.arch.weights is None else None,
        "fp8_cache": served.kv_dtype == "fp8" or None,
        "fp16": lookup.without_bf16(facts) or None,
        "pipeline": layout.pipeline if layout.pipeline > 1 else None,
        "attention_nodes" if layout.data_attention else "nodes": hosts if hosts > 1 else None,
    }
    options = engine.options
    return [options[name].format(value) for name, value in values.items() if value is not None and name in options]


def _cost(wish: Wish, best: Rate) -> float | None:
    if wish.usd_per_gpu_hour is None:
        return None
    return wish.usd_per_gpu_hour / 3600.0 / best.tokens_per_s_per_gpu * 1e6


def _ratio(wish: Wish, served: Served, best: Rate, shares: ServingShares) -> Ratio:
    """Published over predicted rate, of configurations like this one that were left out."""
    _, basis = rate.product_share(shares, wish.facts, served.weights.compute)
    exact = any(
        row.architecture == wish.facts.architecture and served.weights.compute in row.dtypes for row in shares.factors
    )
    kind = wish.limits.scenario if exact else f"{wish.limits.scenario}_uncalibrated"
    layout, reach = best.layout, lookup.link_domain(wish.facts)
    # Engines differ more than submissions do.
    rows = [shares.bands[kind], shares.bands["experts" if wish.arch.mlp.experts else "engines"]]
    rows += [shares.bands["nodes"]] * (layout.tensor > reach and not layout.data_attention)
    rows += [shares.bands["filled"]] * (best.limit in ("cache", "engine") and wish.limits.scenario == "offline")
    low, high = min(row.p10 for row in rows), max(row.p90 for row in rows)
    text = "; ".join(row.basis for row in rows) + f"; products calibrated on {basis}"
    spread = (1.0, 1.0) if exact else rate.product_spread(shares, wish.facts, served.weights.compute)
    if spread != (1.0, 1.0):
        text += "; widened by the spread of matrix products, because none of this GPU is listed"
        low, high = _both(low, spread[0]), _both(high, spread[1])
    return Ratio(p10=low, p90=high, basis=text)


def _bands(wish: Wish, served: Served, best: Rate, shares: ServingShares) -> dict[str, Band]:
    """Rate from held-out configurations, time per token from the inverse of its residuals, first token from its own."""
    ratio = _ratio(wish, served, best, shares)
    text = ratio.basis
    unit = "tokens/s"
    bands_by_name = {
        name: Band(p10=value * ratio.p10, p90=value * ratio.p90, unit=unit, basis=text)
        for name, value in (
            ("rate.tokens_per_s_per_gpu", best.tokens_per_s_per_gpu),
            ("rate.tokens_per_s", best.tokens_per_s),
        )
    }
    low, high = min(1 / ratio.p90, 0.85), max(1 / ratio.p10, 1.2)
    bands_by_name["rate.tpot_s"] = Band(
        p10=best.tpot_s * low, p90=best.tpot_s * high, unit="s", basis=f"inverse of the rate's; {text}"
    )
    first = shares.bands[f"first_token_{wish.engine}"]
    bands_by_name["rate.ttft_s"] = Band(
        p10=best.ttft_s * first.p10, p90=best.ttft_s * first.p90, unit="s", basis=first.basis
    )
    if wish.usd_per_gpu_hour is not None:
        cost = _cost(wish, best) or 0.0
        bands_by_name["usd_per_million_tokens"] = Band(
            p10=cost / ratio.p90, p90=cost / ratio.p10, unit="USD", basis=text
        )
    return bands_by_name


def _both(deviation: float, further: float) -> float:
    """Combine two independent ratios, above or below 1 like the first."""
    return math.exp(math.copysign(math.hypot(math.log(deviation), math.log(further)), math.log(deviation)))


def _headline(wish: Wish, served: Served, best: Rate, bands: dict[str, Band]) -> str:
    band = bands["rate.tokens_per_s_per_gpu"]
    parts = f"TP{best.layout.tensor}" + (f" x PP{best.layout.pipeline}" if best.layout.pipeline > 1 else "")
    cost = _cost(wish, best)
    return (
        f"{wish.arch.name}, {served.weights.name}, {parts} x {best.replicas} replicas on {wish.gpus} {wish.facts.sku}: "
        f"{best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU ({band.p10:,.0f}-{band.p90:,.0f}), "
        f"TTFT {best.ttft_s:.2g} s"
        + (f", {best.tpot_s * 1e3:.3g} ms per token" if wish.lengths.output > 1 else "")
        + (f", USD {cost:.2f} per million tokens." if cost is not None else ".")
    )


def _dominates(best: Rate) -> str:
    parts = best.step.model_dump(exclude={"total"})
    name, value = max(parts.items(), key=lambda item: item[1])
    change = {
        "cache": "more or larger GPUs, or a smaller cache format, hold more sequences",
        "engine": "a higher limit on sequences",
        "given": "another concurrency",
        "time per token": "a longer limit on the time per token",
    }[best.limit]
    return f"{name}: {value / best.step.total:.0%} of a step. Concurrency is limited by {best.limit}: {change}."


def _assumptions(wish: Wish, served: Served, best: Rate, engine: Engine) -> list[str]:
    lengths, margin = wish.lengths, (1 - engine.utilization) * model.memory_bytes(wish.facts) / model.GIB
    limits = wish.limits
    return lookup.first(
        *wish.arch.assumed,
        _other_checkpoint(wish.arch, served.weights),
        None if wish.arch.checkpoint else f"{wish.model} is no known repository: name the one that has the weights.",
        f"{wish.facts.sku} has no bf16: 16-bit products are fp16." if lookup.without_bf16(wish.facts) else None,
        f"{limits.scenario}: mean prompt {lengths.prompt:.0f} and output {lengths.output:.0f} tokens, longest "
        f"request {lengths.longest}.",
        f"Limits for 99 of 100 requests: first token {limits.ttft_s} s, each further {limits.tpot_s} s, taken as "
        f"{knowledge.serving_shares().tpot_headroom:g} times the mean."
        if limits.scenario != "offline"
        else None,
        f"Weights {served.weights.name}, cache {served.kv_dtype}; continuous batching with chunked prefill.",
        f"Margin: {margin:.1f} GiB of each GPU stay free ({1 - engine.utilization:.0%}), "
        f"{engine.overhead_bytes / model.GIB:g} GiB hold activations, graphs and workspaces.",
        "Attention by data, experts over all GPUs of the replica." if best.layout.data_attention else None,
        *_start(wish, best),
        f"{wish.decoding.prefix_hit:.0%} of prompt tokens are found in the prefix cache."
        if wish.decoding.prefix_hit
        else None,
        f"{wish.decoding.draft} drafted tokens, accepted with probability {wish.decoding.acceptance:g}: "
        f"{served.accepted:.2f} tokens a step; drafting one takes {wish.decoding.draft_cost:g} of a step."
        if wish.decoding.draft
        else None,
    )


def _start(wish: Wish, best: Rate) -> list[str]:
    """Sentences on the hosts and servers of the command, if it is not given once on one host."""
    replicas, hosts = _servers(wish, best)
    servers, said = best.replicas // replicas, []
    if servers > 1:
        gpus = replicas * best.layout.gpus
        said.append(f"The command starts one of {servers} servers, each on {gpus} GPUs, behind a load balancer.")
    if hosts > 1:
        how = "on each, with its NODE_RANK" if wish.engine == "sglang" else "on one, of a Ray cluster of them"
        said.append(f"A server takes {hosts} nodes of {lookup.host_gpus(wish.facts)} GPUs: give it {how}.")
    return said


def _other_checkpoint(arch: Architecture, weights: WeightFormat) -> str | None:
    """Note that the planned weights are not those of the checkpoint, and cannot be made of them at start."""
    formats_by_checkpoint = formats.checkpoint_formats(arch)
    if arch.weights is not None and weights.name not in formats_by_checkpoint:
        return f"The checkpoint is quantised as {arch.weights}: {weights.name} needs another one."
    if weights.checkpoint and weights.name not in formats_by_checkpoint:
        return f"{weights.name} needs a checkpoint quantised so: name it in the command instead of the model."
    return None


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
        tpot_s=rate.time_per_output_token(step, served),
        transfer_bytes=size,
        transfer_s=seconds,
        transfer_share_of_ttft=seconds / (first + seconds),
    )
