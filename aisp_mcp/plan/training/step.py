"""Time of a training step: products, memory traffic, exposed communication, pipeline bubble."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from pydantic import Field

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.cluster import collectives
from aisp_mcp.plan.cluster.collectives import Fabric
from aisp_mcp.plan.gemm import TERA
from aisp_mcp.plan.records import TrainingShares
from aisp_mcp.plan.training import memory, unfused
from aisp_mcp.plan.training.layout import Layout, most_layers
from aisp_mcp.plan.training.recipe import Recipe, trainable_share
from aisp_mcp.records import Record

BACKWARD_SHARE = 2 / 3  # of the compute that can overlap with gradient communication
SELECTED = 0.5  # of the forward products that selective recomputation repeats under flash attention
RECOMPUTED = 1.4  # activation traffic of a checkpointed layer relative to a stored one
HALF = 2  # bytes: activations and gathered weights are sent in 16 bits


class StepTime(Record):
    """Seconds of one optimizer step of the whole job."""

    total_s: float
    products_s: float
    traffic_s: float = Field(description="Passes over activations, logits and optimizer state.")
    tensor_s: float = Field(description="Tensor, context and expert collectives, and transfers between stages.")
    data_exposed_s: float = Field(description="Gradient and weight collectives beyond what the backward pass hides.")
    bubble_s: float
    tokens_per_s: float
    mfu: float = Field(description="Model FLOPs, causal attention counted half, over dense peak of all GPUs.")


@dataclass(frozen=True)
class StepJob:
    """Model, recipe and machine of a step, for which layouts are compared. speed: measured over predicted rate of
    work.
    """

    arch: Architecture
    recipe: Recipe
    seq: int
    facts: GpuFacts
    shares: TrainingShares
    fabric: Fabric
    speed: float = 1.0

    def at(self, speed: float) -> StepJob:
        return replace(self, speed=speed)


def fabric(facts: GpuFacts, shares: TrainingShares, per_node: int, network: float | None = None) -> Fabric:
    """The links of a machine. network: bytes/s per GPU and direction between nodes; None: the usual one."""
    between = network or shares.network_bytes_s
    return Fabric(
        link=facts.link.per_direction_bytes_s if facts.link else between,
        network=between,
        per_node=per_node,
        links=collectives.kind_of(facts.link.kind) if facts.link else "other",
    )


@lru_cache(maxsize=parameters.KEPT)
def flops(arch: Architecture, recipe: Recipe, seq: int) -> float:
    """Model FLOPs of forward and backward of one token. Frozen weights need no gradient: 4 instead of 6 each."""
    spared = 2.0 * (1 - trainable_share(arch, recipe)) if recipe.lora_rank is not None else 0.0
    return parameters.training_flops(arch, seq) - spared * parameters.matmul(arch)


def time(job: StepJob, layout: Layout) -> StepTime:
    """Predict one step. Raises KeyError when the datasheet or the calibration has no figure for the type."""
    products = _products(job, layout) / job.speed
    traffic = _traffic(job, layout) / job.speed
    inner = _tensor(job, layout) + _expert(job, layout) * job.shares.exposed
    inner += job.shares.expert_layer_s * parameters.moe_layers(job.arch) / layout.pipeline
    inner += _context(job, layout) + _stages(job, layout)
    inner *= layout.microbatches
    busy = products + traffic + inner
    bubble = busy * (layout.pipeline - 1) / layout.microbatches / layout.virtual
    exposed = _exposed(job, layout, busy)
    update = _update(job, layout)
    total = busy + bubble + exposed + update
    tokens = layout.microbatch * layout.microbatches * layout.data * job.seq
    peak = job.facts.peak[job.recipe.compute].dense * TERA
    return StepTime(
        total_s=total,
        products_s=products,
        traffic_s=traffic + update,
        tensor_s=inner,
        data_exposed_s=exposed,
        bubble_s=bubble,
        tokens_per_s=tokens / total,
        mfu=flops(job.arch, job.recipe, job.seq) * tokens / total / (peak * layout.gpus),
    )


def least(job: StepJob, layout: Layout) -> float:
    """Products and the bubble alone: a bound of the step that is quick to compute."""
    return _products(job, layout) / job.speed * (1 + (layout.pipeline - 1) / layout.microbatches / layout.virtual)


def _fullest(job: StepJob, layout: Layout) -> float:
    """Share of the layers on the fullest stage, which is the slowest."""
    return most_layers(job.arch, layout) / job.arch.layers


def _products(job: StepJob, layout: Layout) -> float:
    """Seconds in matrix products and attention of all microbatches of one GPU."""
    arch, recipe, shares = job.arch, job.recipe, job.shares
    tokens = layout.microbatch * job.seq / layout.context
    attention = 3.0 * parameters.attention_flops(arch, job.seq) / job.seq * tokens
    head = 6.0 * arch.vocab * arch.hidden * tokens
    layers = flops(arch, recipe, job.seq) * tokens - attention - head
    forward = layers / (4.0 if recipe.lora_rank is not None else 6.0) * 2.0
    selective = layout.recompute == "selective"
    again = 1.0 if selective and not recipe.flash else layout.again
    layers += forward * (SELECTED if selective and recipe.flash else layout.again)
    attention *= 1 + again / 3
    wide = "fp32" if recipe.compute == "fp32" else "bf16"
    rates = {
        kind: job.facts.peak[kind].dense * TERA * shares.sku.get(job.facts.sku, 1.0) for kind in {recipe.compute, wide}
    }
    experts = layers * _expert_share(arch)
    dense_rate = rates[recipe.compute] * shares.peak[recipe.compute]
    body = (layers - experts) / dense_rate + experts / (dense_rate * shares.experts.get(recipe.compute, 1.0))
    body += attention / (rates[wide] * shares.attention)
    last = head / (rates[wide] * shares.peak[wide])
    # With a pipeline, the head is on one stage only; it counts evenly, as frameworks put fewer layers there.
    each = body * _fullest(job, layout) + last / layout.pipeline
    return each / layout.tensor * layout.microbatches


def _expert_share(arch: Architecture) -> float:
    """Part of the products of the layers that routed experts do."""
    experts = arch.mlp.experts
    if experts is None:
        return 0.0
    used = parameters.routed(arch) * experts.active / experts.count
    return used / max(used, parameters.active(arch) - parameters.embeddings(arch))


def _traffic(job: StepJob, layout: Layout) -> float:
    """Seconds of elementwise work of all microbatches."""
    arch, shares, layers = job.arch, job.shares, _fullest(job, layout) * job.arch.layers
    again = 1.0 if layout.recompute == "selective" and job.recipe.flash else layout.again
    tokens = layout.microbatch * job.seq // layout.context
    logits = memory.FP32 * tokens * arch.vocab / layout.tensor / layout.pipeline
    bandwidth = job.facts.memory.bandwidth_bytes_s
    seconds = shares.loss_passes * logits / bandwidth
    if job.recipe.unfused:
        moved = layers * tokens * unfused.moved(arch, job.recipe.operators(layout.zero), again) / layout.tensor
        seconds += moved / (bandwidth * shares.bandwidth)
    else:
        stored = layers * memory.layer_activations(arch, layout, job.recipe, job.seq)
        small = job.recipe.compute in ("fp8", "fp4") and arch.mlp.experts is None
        passes = shares.activation_passes + (shares.cast_passes if small else 0.0)
        seconds += passes * stored * (1 + (RECOMPUTED - 1) * again) / bandwidth
    if job.recipe.wide_weights:
        cast = memory.local_parameters(arch, layout) * trainable_share(arch, job.recipe)
        seconds += cast * unfused.CASTS.passes(again) / (bandwidth * shares.bandwidth)
    return seconds * layout.microbatches


def _update(job: StepJob, layout: Layout) -> float:
    """Seconds of the optimizer: memory traffic, and with offload the transfer over PCIe."""
    recipe, local_count = job.recipe, memory.local_parameters(job.arch, layout) * trainable_share(job.arch, job.recipe)
    local_count /= layout.shards if layout.zero else 1
    moved = local_count * (2 * (recipe.weights + recipe.optimizer) + recipe.gradients)
    if recipe.torch_weights:  # the trainer of transformers limits the gradient's norm in passes of its own
        moved += local_count * unfused.CLIP_PASSES * (memory.FP32 if recipe.wide_weights else recipe.gradients)
    seconds = moved / (job.facts.memory.bandwidth_bytes_s * job.shares.bandwidth)
    if recipe.offload:
        seconds = max(seconds, local_count * (recipe.gradients + recipe.weights) / _host_rate(job.facts))
    return seconds


def _host_rate(facts: GpuFacts) -> float:
    """Bytes/s per direction of the host link: PCIe 3 carries 0.985 GB/s a lane, each generation twice that."""
    generation, width = (facts.pcie.generation, facts.pcie.width) if facts.pcie else (4, 16)
    return 0.985e9 * float(2 ** (generation - 3)) * width * 0.8


def _passes(layout: Layout) -> float:
    return 2 + layout.again


def _tensor(job: StepJob, layout: Layout) -> float:
    """Two all-reduces (or their halves under sequence parallelism) per layer and pass of one microbatch."""
    if layout.tensor == 1:
        return 0.0
    size = job.recipe.activations * job.arch.hidden * layout.microbatch * job.seq / layout.context
    # Sequence parallelism does an all-reduce in two halves, a gather before and a scatter after each block.
    split = job.recipe.sequence_parallel
    each = collectives.seconds("all_gather" if split else "all_reduce", size, layout.tensor, 1, job.fabric)
    return (4 if split else 2) * _passes(layout) * each * most_layers(job.arch, layout)


def _context(job: StepJob, layout: Layout) -> float:
    """Keys and values of the other ranks, once forward and twice (with their gradients) backward."""
    if layout.context == 1:
        return 0.0
    a = job.arch.attention
    width = a.latent.kv_rank + a.latent.rope_dim if a.latent else 2 * a.kv_heads * a.head_dim / layout.tensor
    size = HALF * width * layout.microbatch * job.seq
    each = collectives.seconds("all_gather", size, layout.context, layout.tensor, job.fabric)
    return (_passes(layout) + 1) * each * most_layers(job.arch, layout)


def _expert(job: StepJob, layout: Layout) -> float:
    """Tokens to their experts and back, in each pass of the layers with experts; a token is sent to a node
    only once.
    """
    experts = job.arch.mlp.experts
    if experts is None or layout.expert == 1:
        return 0.0
    tokens = layout.microbatch * job.seq / layout.context / layout.tensor
    nodes = max(1, layout.expert // job.fabric.per_node)
    inside = min(experts.active, layout.expert)
    copies = nodes * (1 - (1 - 1 / nodes) ** inside) if nodes > 1 else inside
    size = HALF * job.arch.hidden * tokens * copies
    each = collectives.seconds("all_to_all", size, layout.expert, 1, job.fabric)
    return 2 * _passes(layout) * each * parameters.moe_layers(job.arch) / layout.pipeline


def _stages(job: StepJob, layout: Layout) -> float:
    """Activations to the next stage and gradients back, for each chunk; they overlap with the next microbatch."""
    if layout.pipeline == 1:
        return 0.0
    size = HALF * job.arch.hidden * layout.microbatch * job.seq / layout.context / layout.tensor
    inside = layout.gpus <= job.fabric.per_node
    # A send to the neighbour takes as long as a gather of both halves between two ranks.
    fabric = job.fabric if inside else replace(job.fabric, per_node=1)
    return 2 * layout.virtual * collectives.seconds("all_gather", 2 * size, 2, 1, fabric) * job.shares.contention


def _exposed(job: StepJob, layout: Layout, busy: float) -> float:
    """Gradient and weight collectives over the replicas, minus the overlapping part."""
    if layout.shards == 1:
        return 0.0
    recipe = job.recipe
    trained = trainable_share(job.arch, recipe)
    local_count = memory.local_parameters(job.arch, layout)
    stride = layout.tensor

    def over(name: str, width: float) -> float:
        return collectives.seconds(name, local_count * width, layout.shards, stride, job.fabric)

    if layout.zero >= 3:
        gathers = (2 if recipe.reshard else 1) * over("all_gather", recipe.weights)
        data = (gathers + over("reduce_scatter", recipe.gradients * trained)) * layout.microbatches
        hidden = busy
    else:
        times = layout.microbatches if layout.zero == 2 else 1
        reduce = over("reduce_scatter", recipe.gradients * trained) * times
        gather = over("all_gather", recipe.weights * trained)
        data = reduce + gather
        # Gradients overlap with the last backward pass, new weights with the first forward pass.
        hidden = busy / layout.microbatches * (times * BACKWARD_SHARE + (1 - BACKWARD_SHARE) * (layout.zero > 0))
    # Overlapping work shares memory bandwidth and multiprocessors, so overlap is not free.
    hidden_s = min(data, hidden)
    return data - hidden_s + job.shares.contention * hidden_s
