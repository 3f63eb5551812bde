"""The end-to-end rate of a replica: decode and prefill share every step, as in engines with continuous batching."""

from __future__ import annotations

import math

from pydantic import Field

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import gemm, kv, lookup, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.cluster import collectives
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Engine, EngineFactor, ServingShares, WeightFormat
from aisp_mcp.plan.serving.workload import Lengths
from aisp_mcp.records import Record

SHARPNESS = 6.0
ELEMENT = 2.0  # bytes of an activation between kernels
PASSES_HIDDEN, PASSES_MLP = 5, 2  # reads and writes of a layer's activations outside products; engines fuse the rest
NARROW = 64  # size of a head
NODE = 8  # GPUs connected by a link
NETWORK = 50.0e9  # bytes/s per GPU between nodes: 400 Gb/s adapters
DISPATCH = 3.0  # bytes per element to an expert and back: fp8 out, bf16 in
REDUCE_S = 1.0e-5  # an engine's own all-reduce of few rows inside a node; between nodes it calls NCCL


class Layout(Record):
    """GPUs of one replica. data_attention: each GPU attends to its own sequences, experts are spread over all."""

    tensor: int
    pipeline: int = 1
    data_attention: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline


class Step(Record):
    """Seconds of one engine step by component, averaged over steps with and without prefill."""

    products: float
    attention: float
    activations: float
    links: float
    launches: float
    waiting: float = Field(description="Stages or experts waiting for each other; drafting.")
    host: float = Field(description="Scheduling, sampling and detokenising on the CPU, for each sequence.")
    total: float


class Served(Record):
    """The model to serve, weight format, cache dtype and GPU."""

    arch: Architecture
    weights: WeightFormat
    kv_dtype: str
    facts: GpuFacts
    prefix_hit: float = Field(default=0.0, description="Share of prompt tokens found in the prefix cache.")
    accepted: float = Field(default=1.0, description="Tokens that one decode step yields; above 1 with speculation.")
    drafting: float = Field(default=0.0, description="Time of the draft model over that of a step.")
    drafted: float = Field(default=0.0, description="Tokens that are verified besides, per sequence and step.")


def product_share(shares: ServingShares, facts: GpuFacts, dtype: str) -> tuple[float, str]:
    """Sustained share of the peak, and the source of its calibration."""
    listed = [r for r in shares.matmul if r.architecture == facts.architecture and r.dtype == dtype]
    best = next((r for r in listed if r.sku == facts.sku), None) or next((r for r in listed if r.sku is None), None)
    factor = next((r for r in shares.factors if r.architecture == facts.architecture and dtype in r.dtypes), None)
    near = _near(shares, facts, dtype)
    used = factor or near
    default = shares.default_matmul[16 if gemm.WIDTH[dtype] >= 2 else 8]
    value = (best.share if best else default) * (used.factor if used else shares.default_factor)
    if factor:
        return value, factor.basis
    how = f"results in {near.dtypes[0]} of {near.architecture}" if near else "results of other architectures"
    return value, f"{how}; none of {facts.architecture} in {dtype}"


def _near(shares: ServingShares, facts: GpuFacts, dtype: str) -> EngineFactor | None:
    """The factor of the same architecture in another type, else of the same family, such as Blackwell for its Ultra."""
    family = facts.architecture.partition(" ")[0]
    same = [row for row in shares.factors if row.architecture == facts.architecture]
    related = [row for row in shares.factors if row.architecture.partition(" ")[0] == family]
    wide = gemm.WIDTH[dtype] >= 2
    alike = [row for row in related if any((gemm.WIDTH[name] >= 2) == wide for name in row.dtypes)]
    return next(iter([*same, *alike, *related]), None)


def product_spread(shares: ServingShares, facts: GpuFacts, dtype: str) -> tuple[float, float]:
    """Lowest and highest listed product over their mean, if the default replaces this GPU's; else 1 and 1."""
    if any(r.architecture == facts.architecture and r.dtype == dtype for r in shares.matmul):
        return 1.0, 1.0
    bits = 16 if gemm.WIDTH[dtype] >= 2 else 8
    listed = [r.share for r in shares.matmul if (gemm.WIDTH[r.dtype] >= 2) == (bits == 16)]
    return min(listed) / shares.default_matmul[bits], max(listed) / shares.default_matmul[bits]


def cache_bytes(served: Served, layout: Layout, tokens: float) -> float:
    """Cache of one sequence over all GPUs of the replica, including copies."""
    attention = served.arch.attention
    copies = (
        1
        if layout.data_attention
        else layout.tensor
        if attention.latent
        else max(1, layout.tensor // attention.kv_heads)
    )
    return kv.sequence_bytes(served.arch, math.ceil(tokens), served.kv_dtype) * copies


def step(
    served: Served, layout: Layout, lengths: Lengths, concurrency: float, shares: ServingShares, engine: Engine
) -> Step:
    """Time of one step of a replica with `concurrency` sequences. Raises KeyError without the dtype's peak."""
    # Fewer sequences than stages leave stages idle: a sequence alone passes through all of them.
    together = concurrency / min(float(layout.pipeline), max(1.0, concurrency))
    decode = together * (1 + served.drafted)
    fresh = lengths.prompt * (1 - served.prefix_hit)
    prefill = together * fresh / lengths.output * served.accepted
    with_prefill = min(1.0, prefill / shares.chunk_tokens)
    rows = max(prefill, shares.chunk_tokens) + decode
    products = with_prefill * _products(served, layout, rows, shares) + (1 - with_prefill) * _products(
        served, layout, decode, shares
    )
    products += _head(served, layout, decode, shares)
    attention = _attention(served, layout, lengths, together, shares)
    activations = _activations(served, layout, decode + prefill, shares)
    links, latency = _links(served, layout, decode + prefill, shares)
    launches = served.arch.layers * engine.per_layer_s + latency + _floors(served, layout, shares)
    spent = products + attention + activations + links + launches
    loss = spent * (served.drafting + (shares.pipeline_loss if layout.pipeline > 1 else 0.0))
    loss += spent * shares.expert_loss if served.arch.mlp.experts else 0.0
    # With attention by data, every GPU has a scheduler of its own.
    sequences = together / (layout.tensor if layout.data_attention else 1)
    host = shares.host.step_s + shares.host.sequence_s * sequences
    return Step(
        products=products,
        attention=attention,
        activations=activations,
        links=links,
        launches=launches,
        waiting=loss,
        host=host,
        total=spent + loss + host,
    )


def time_per_output_token(step_s: float, served: Served) -> float:
    """Mean seconds from one token of a sequence to its next. step_s: of a step, which yields each `accepted` tokens."""
    return step_s / served.accepted


def _floors(served: Served, layout: Layout, shares: ServingShares) -> float:
    """Seconds that a step takes however few rows it has: kernels of routed experts, and messages between nodes."""
    experts = shares.expert_launch_s * parameters.moe_layers(served.arch) if served.arch.mlp.experts else 0.0
    hops = (layout.gpus - 1) // NODE if layout.pipeline > 1 else 0
    return experts + hops * tables.collectives().network.start_us * 1e-6


def prefill_s(served: Served, layout: Layout, lengths: Lengths, shares: ServingShares, engine: Engine) -> float:
    """Time from a prompt's arrival at an idle replica to its first token."""
    rows = max(1.0, lengths.prompt * (1 - served.prefix_hit))
    attend = parameters.attention_flops(served.arch, math.ceil(lengths.prompt)) * (1 - served.prefix_hit)
    attend *= lengths.prompt_squared / lengths.prompt**2 / layout.tensor / _attention_rate(served, shares)
    links, latency = _links(served, layout, rows, shares)
    spent = _products(served, layout, rows, shares) + _head(served, layout, 1, shares) + attend + links + latency
    spent += _activations(served, layout, rows, shares) + served.arch.layers * engine.per_layer_s
    return spent * (1 + shares.expert_loss) if served.arch.mlp.experts else spent


def _products(served: Served, layout: Layout, rows: float, shares: ServingShares) -> float:
    """Matrix products of all layers for `rows` tokens, bound by compute or by reading the weights."""
    arch, facts, weights = served.arch, served.facts, served.weights
    share, _ = product_share(shares, facts, weights.compute)
    experts = arch.mlp.experts
    routed = parameters.routed(arch)
    dense = parameters.total(arch) - parameters.embeddings(arch) - parameters.beside(arch) - routed
    copies = layout.tensor if layout.data_attention else 1  # of the dense weights; each GPU has its part of the rows
    read = dense * copies / layout.tensor
    time = _bound(facts, weights, 2.0 * rows * dense / layout.tensor, read, share, shares)
    if experts is None or routed <= 0:
        return time
    touched = routed * (1.0 - (1.0 - experts.active / experts.count) ** rows)
    flops = 2.0 * rows * routed * experts.active / experts.count
    return time + _bound(facts, weights, flops / layout.tensor, touched / layout.tensor, share, shares)


def _bound(
    facts: GpuFacts, weights: WeightFormat, flops: float, read: float, share: float, shares: ServingShares
) -> float:
    work = flops / (facts.peak[weights.compute].dense * gemm.TERA * share)
    memory = read * weights.bytes / (facts.memory.bandwidth_bytes_s * shares.bandwidth)
    return float((work**SHARPNESS + memory**SHARPNESS) ** (1 / SHARPNESS))


def _head(served: Served, layout: Layout, rows: float, shares: ServingShares) -> float:
    """The output head, in 16 bits, for the sampled rows."""
    size = served.arch.vocab * served.arch.hidden / layout.tensor
    share, _ = product_share(shares, served.facts, "bf16")
    work = 2.0 * rows * size / (served.facts.peak["bf16"].dense * gemm.TERA * share)
    return max(work, 2.0 * size / (served.facts.memory.bandwidth_bytes_s * shares.bandwidth))


def _attention_rate(served: Served, shares: ServingShares) -> float:
    """FLOP/s of attention's products: narrow heads have fewer of them for each exponential."""
    a = served.arch.attention
    share = shares.narrow_attention if a.latent is None and a.head_dim <= NARROW else 1.0
    return served.facts.peak["bf16"].dense * gemm.TERA * shares.attention * share


def _attention(served: Served, layout: Layout, lengths: Lengths, sequences: float, shares: ServingShares) -> float:
    """Decode: cache reads or, for latent attention, its products in the compressed space. Prefill: causal products."""
    arch, a = served.arch, served.arch.attention
    read = cache_bytes(served, layout, lengths.context) * sequences / layout.tensor
    memory = read / (served.facts.memory.bandwidth_bytes_s * shares.bandwidth)
    width = 2 * a.latent.kv_rank + a.latent.rope_dim if a.latent else 2 * a.head_dim
    flops = 2.0 * a.heads * width * a.layers * lengths.context * (1 + served.drafted) * sequences / layout.tensor
    rate = _attention_rate(served, shares)
    causal = parameters.attention_flops(arch, math.ceil(lengths.prompt)) * lengths.prompt_squared / lengths.prompt**2
    prompts = sequences / lengths.output * served.accepted * (1 - served.prefix_hit)
    return max(memory, flops / rate) + prompts * causal / layout.tensor / rate


def _activations(served: Served, layout: Layout, rows: float, shares: ServingShares) -> float:
    """Norms, activations and quantisation between products: bytes moved."""
    arch, experts = served.arch, served.arch.mlp.experts
    width = experts.ffn * (experts.active + experts.shared) if experts else arch.mlp.width
    hidden = arch.hidden / (layout.tensor if layout.data_attention else 1)
    moved = rows * arch.layers * (PASSES_HIDDEN * hidden + PASSES_MLP * width / layout.tensor) * ELEMENT
    return moved / (served.facts.memory.bandwidth_bytes_s * shares.bandwidth)


def _links(served: Served, layout: Layout, rows: float, shares: ServingShares) -> tuple[float, float]:
    """Bandwidth time and latency: two all-reduces a layer, or dispatch and combine of the experts."""
    n, arch, facts = layout.tensor, served.arch, served.facts
    if n == 1:
        return 0.0, 0.0
    rate = (facts.link.per_direction_bytes_s if facts.link else _pcie(facts)) * shares.link
    if layout.data_attention and arch.mlp.experts:
        token = rows / n * arch.hidden * DISPATCH
        size = token * arch.mlp.experts.active * (min(n, NODE) - 1) / n
        away = token * _nodes_reached(n, arch.mlp.experts.active) / (NETWORK * shares.network)
        layers = parameters.moe_layers(arch)
        return layers * max(size / rate, away), layers * shares.expert_layer_s * (2 if n > NODE else 1)
    if n > lookup.link_domain(facts):
        every, least = (_reduce_s(facts, size, n) + shares.between_s for size in (rows * arch.hidden * ELEMENT, 0.0))
        return 2 * arch.layers * (every - least), 2 * arch.layers * least
    size = 2.0 * rows * arch.hidden * ELEMENT * (n - 1) / n
    return 2 * arch.layers * size / rate, 2 * arch.layers * REDUCE_S


def _reduce_s(facts: GpuFacts, size: float, ranks: int) -> float:
    """NCCL's all-reduce of `size` bytes over several nodes."""
    link, kind = (facts.link.per_direction_bytes_s, facts.link.kind) if facts.link else (_pcie(facts), "pcie")
    fabric = collectives.Fabric(link, NETWORK, lookup.link_domain(facts), collectives.kind_of(kind))
    return collectives.seconds("all_reduce", size, ranks, 1, fabric)


def _nodes_reached(gpus: int, active: int) -> float:
    """Average number of other nodes that a token's experts are on: it crosses the network once to each."""
    nodes = gpus / NODE
    return (nodes - 1) * (1 - (1 - 1 / nodes) ** active) if nodes > 1 else 0.0


def _pcie(facts: GpuFacts) -> float:
    """Bytes per second and direction of the host link; without an entry, that of generation 4."""
    lane = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
    return lane.get(facts.pcie.generation, 1.969e9) * facts.pcie.width if facts.pcie else 31.5e9
