"""Peak memory of a training step on the fullest GPU, itemised.

Stored activations are those that PyTorch keeps for a pre-norm decoder; the synthetic transformer
(machine/probes/children/transformer.py) is that model, and docs/planners.md compares predictions with its measured
peaks. With dropout and without flash attention, they are the 34 + 5 a s / h bytes per token and hidden element of
Korthikanti et al. (2205.05198). Gradients are freed after each step, as zero_grad does by default. The backward pass
creates gradients while it frees activations, so the peak is at one of its ends: when the loss is differentiated, in the
first or last layer that it passes, or when the optimizer has all gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field

from aisp_mcp.plan import parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Item
from aisp_mcp.plan.training import unfused
from aisp_mcp.plan.training.layout import Layout, stage_layers
from aisp_mcp.plan.training.recipe import RECIPES, Recipe, trainable_share
from aisp_mcp.records import Record

__all__ = ["RECIPES", "Recipe", "TrainingMemory", "stages", "training"]
FP32, HALF = 4, 2
CHUNK = 1024  # tokens whose logits a fused loss holds


class TrainingMemory(Record):
    """peak_bytes is the largest of four moments; items add up to it."""

    peak_bytes: int
    moment: str = Field(description="When the peak is reached.")
    stage: int = Field(default=0, description="Pipeline stage of this GPU.")
    items: list[Item]


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: its layers, and its parameters outside and inside routed experts, before tensor splits."""

    number: int
    layers: int
    rest: int
    experts: int
    first: bool
    last: bool


def stages(arch: Architecture, layout: Layout) -> tuple[Stage, ...]:
    """The stages of a pipeline. Dense layers of a MoE come first; a tied embedding is on both ends."""
    return _stages(arch, layout.pipeline)


@lru_cache(maxsize=parameters.KEPT)
def _stages(arch: Architecture, pipeline: int) -> tuple[Stage, ...]:
    table = arch.vocab * arch.hidden
    every = parameters.moe_layers(arch)
    expert = parameters.routed(arch) // every if every else 0
    others = (parameters.total(arch) - parameters.embeddings(arch) - parameters.routed(arch)) / arch.layers
    dense_left, all_stages = arch.layers - every, []
    for number, count in enumerate(stage_layers(arch, pipeline)):
        first, last = number == 0, number == pipeline - 1
        dense = min(dense_left, count)
        dense_left -= dense
        tables = table * (1 if arch.tied and first and last else first + last)
        all_stages.append(
            Stage(number, count, math.ceil(count * others) + tables, (count - dense) * expert, first, last)
        )
    return tuple(all_stages)


class Part(NamedTuple):
    """An Item before the answer is made: a search makes thousands of them."""

    name: str
    bytes: int
    how: str


def training(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, workspace: int = 0) -> TrainingMemory:
    """Memory of the fullest stage. workspace: bytes of library workspaces, a constant of device and framework."""
    per_stage = [on_stage(arch, layout, recipe, seq, stage, workspace) for stage in _fullest_ones(arch, layout)]
    return max(per_stage, key=lambda memory: memory.peak_bytes)


def peak(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, workspace: int = 0) -> int:
    """Bytes of the fullest stage, as training() itemises them."""
    every = (_parts(arch, layout, recipe, seq, stage, workspace)[1] for stage in _fullest_ones(arch, layout))
    return max(sum(part.bytes for part in parts) for parts in every)


def _fullest_ones(arch: Architecture, layout: Layout) -> list[Stage]:
    """Inner stages differ only in batches in flight; the fullest of them is the second or the largest."""
    every = stages(arch, layout)
    largest = max(range(len(every)), key=lambda at: every[at].experts + every[at].rest)
    return [every[at] for at in sorted({0, 1, layout.pipeline - 1, largest}) if at < len(every)]


def least(arch: Architecture, layout: Layout, recipe: Recipe) -> int:
    """States of the fullest stage, which no schedule avoids: a bound that is quick to compute."""
    widest = _widest(arch, layout.pipeline, layout.tensor, layout.expert_split, layout.shards)
    return _states_of(widest, layout, recipe, trainable_share(arch, recipe))


def least_stored(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> int:
    """The same with the activations that the first stage stores."""
    layers = -(-arch.layers // layout.pipeline)
    first = _widest(arch, layout.pipeline, layout.tensor, layout.expert_split, layout.shards, 0)
    stored = layers * _kept_per_layer(arch, layout, recipe, seq) * in_flight(layout, 0)
    return int(stored) + _states_of(first, layout, recipe, trainable_share(arch, recipe))


def _states_of(parts: tuple[float, float], layout: Layout, recipe: Recipe, trained: float) -> int:
    """Weights, optimizer and gradients of (whole, sharded) parameters."""
    whole, sharded = parts
    weights, gradients = _held(layout, recipe)
    size = (sharded if layout.zero >= 3 else whole) * weights
    size += 0 if recipe.offload else (sharded if layout.zero >= 1 else whole) * recipe.optimizer * trained
    if _keeps_gradients(layout, recipe):
        size += (sharded if layout.zero >= 2 else whole) * gradients * trained
    return int(size)


@lru_cache(maxsize=parameters.KEPT)
def _widest(
    arch: Architecture, pipeline: int, tensor: int, expert_split: int, shards: int, number: int | None = None
) -> tuple[float, float]:
    """Parameters of a GPU of the fullest stage, or of that number, and those that it keeps when they are sharded."""
    every = _stages(arch, pipeline)
    if number is None:
        stage = max(every, key=lambda item: item.rest / tensor + item.experts / expert_split)
    else:
        stage = every[number]
    rest, experts = stage.rest / tensor, stage.experts / expert_split
    return rest + experts, rest / shards + experts / max(1, shards * tensor // expert_split)


def on_stage(
    arch: Architecture, layout: Layout, recipe: Recipe, seq: int, stage: Stage, workspace: int = 0
) -> TrainingMemory:
    moment, parts = _parts(arch, layout, recipe, seq, stage, workspace)
    items = [Item(**part._asdict()) for part in parts if part.bytes]
    return TrainingMemory(peak_bytes=sum(item.bytes for item in items), moment=moment, stage=stage.number, items=items)


def _parts(
    arch: Architecture, layout: Layout, recipe: Recipe, seq: int, stage: Stage, workspace: int
) -> tuple[str, list[Part]]:
    """The moment of the peak, and what is then in memory."""
    trained = trainable_share(arch, recipe)
    rest, experts = _local(stage, layout)
    # Routed experts are already divided over the expert ranks: only their copies remain to be sharded.
    sharded = rest / layout.shards + experts / max(1, layout.shards * layout.tensor // layout.expert_split)
    held = sharded if layout.zero >= 2 else rest + experts
    each = _held(layout, recipe)[1]
    gradients = Part(name="gradients", bytes=_up(held * trained * each), how=f"{each} bytes per parameter")
    activations = _stored(arch, layout, recipe, seq, stage)
    loss = _loss(arch, layout, recipe, seq) if stage.last else []
    moments = {
        "start of backward": [*activations, *loss],
        "backward of the last layer": [*activations, *_layer_backward(arch, layout, recipe, seq)],
        "backward of the first layer": _last_backward(arch, layout, recipe, seq, stage, gradients),
        "optimizer step": [gradients],
    }
    if _keeps_gradients(layout, recipe):
        moments = {name: [gradients, *(i for i in items if i.name != "gradients")] for name, items in moments.items()}
    moment, items = max(moments.items(), key=lambda entry: sum(i.bytes for i in entry[1]))
    items = [*_states(rest + experts, sharded, layout, recipe, trained), *_gathered(arch, layout, recipe), *items]
    if recipe.weights < 1:  # quantised layers: embedding and head stay in 16 bits
        tables = arch.vocab * arch.hidden * (stage.first + (stage.last and not arch.tied)) / layout.tensor
        how = "embedding and head, beyond the bits of the layers"
        items.append(Part(name="16-bit tables", bytes=_up(tables * (HALF - recipe.weights)), how=how))
    if recipe.keeps_gathered and layout.pipeline > 1 and stage.last:
        size = HALF * arch.vocab * _tokens(layout, seq) // layout.tensor * layout.microbatches
        items.append(Part(name="outputs", bytes=size, how="16-bit logits of all microbatches, until the step ends"))
    if recipe.keeps_gathered and layout.pipeline > 1:
        items.append(_between_stages(arch, layout, recipe, seq, stage))
    if workspace:
        items.append(Part(name="library workspaces", bytes=workspace, how="cuBLAS, one per thread that calls it"))
    return moment, items


def local_parameters(arch: Architecture, layout: Layout) -> int:
    """Parameters whose weights one GPU of the fullest stage computes with, before any ZeRO sharding."""
    return _fullest(arch, layout.pipeline, layout.tensor, layout.expert_split)


@lru_cache(maxsize=parameters.KEPT)
def _fullest(arch: Architecture, pipeline: int, tensor: int, expert_split: int) -> int:
    return max(_up(stage.rest / tensor + stage.experts / expert_split) for stage in _stages(arch, pipeline))


def _up(value: float) -> int:
    return math.ceil(value)


def _local(stage: Stage, layout: Layout) -> tuple[float, float]:
    return stage.rest / layout.tensor, stage.experts / layout.expert_split


def _held(layout: Layout, recipe: Recipe) -> tuple[float, int]:
    """Bytes per parameter of weights beside the optimizer's, and of gradients. FSDP keeps no copy in 16 bits."""
    without = recipe.wide_weights and layout.zero >= 3 and not recipe.offload
    return (0, FP32) if without else (recipe.weights, recipe.gradients)


def _keeps_gradients(layout: Layout, recipe: Recipe) -> bool:
    """Gradients are present all the time: those of earlier microbatches, or the buckets in which GPUs reduce them."""
    return layout.microbatches > 1 or (layout.gpus > 1 and not (recipe.torch_weights and layout.zero >= 3))


def _states(parameters: float, sharded: float, layout: Layout, recipe: Recipe, trained: float) -> list[Part]:
    each = _held(layout, recipe)[0]
    weights = _up((sharded if layout.zero >= 3 else parameters) * each)
    moments = _up((sharded if layout.zero >= 1 else parameters) * recipe.optimizer * trained)
    shard = f", sharded over {layout.shards} GPUs (ZeRO-{layout.zero})" if layout.zero else ""
    suffix = ", in host memory" if recipe.offload else ""
    return [
        Part(name="weights", bytes=weights, how=f"{each:.4g} bytes x {_up(parameters)} parameters"),
        Part(
            name="optimizer",
            bytes=0 if recipe.offload else moments,
            how=f"{recipe.optimizer:g} bytes per parameter{shard}{suffix}",
        ),
    ]


def _tokens(layout: Layout, seq: int) -> int:
    return layout.microbatch * seq // layout.context


def _layer_backward(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> list[Part]:
    """Temporaries of one layer's backward pass, and its recomputed activations under checkpointing."""
    tokens = _tokens(layout, seq)
    experts = arch.mlp.experts
    width = experts.active * experts.ffn if experts else arch.mlp.width
    spare = recipe.activations * tokens * (2 * width + arch.hidden) // layout.tensor
    how = "two gradients of MLP width, one of the residual"
    if layout.tensor > 1 and recipe.sequence_parallel:  # and of the MLP's input, before the ranks add up their parts
        spare += _gathered_inputs(arch, recipe, tokens, layout.tensor)
        how += ", two of hidden width for all tokens"
    items = [Part(name="backward temporaries", bytes=spare, how=how)]
    if layout.again:
        each = layer_activations(arch, layout, recipe, seq)
        items.append(Part(name="recomputed layer", bytes=each, how="one layer's activations again"))
    elif layout.recompute == "selective":
        each = layer_activations(arch, layout, recipe, seq) - _kept_per_layer(arch, layout, recipe, seq)
        items.append(Part(name="recomputed parts", bytes=each, how="of one layer again"))
    return items


def _between_stages(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, stage: Stage) -> Part:
    """Memory at the ends of a stage in PyTorch's pipelines: buffers to receive in, outputs until the backward pass."""
    received = layout.microbatches * ((not stage.first) + (not stage.last))
    sent = 0 if stage.last else in_flight(layout, stage.number)
    each = recipe.activations * arch.hidden * _tokens(layout, seq) // layout.tensor
    how = f"buffers for {received} inputs and gradients of microbatches, {sent:.3g} outputs"
    return Part(name="between stages", bytes=_up((received + sent) * each), how=how)


def _last_backward(
    arch: Architecture, layout: Layout, recipe: Recipe, seq: int, stage: Stage, gradients: Part
) -> list[Part]:
    """The last layer that the backward pass reaches: all other gradients exist, and its activations still do."""
    tables = arch.vocab * arch.hidden * stage.first
    body = stage.rest + stage.experts
    share = (body - tables) * (stage.layers - 1) / stage.layers / body if body else 0
    items = _layer_backward(arch, layout, recipe, seq)
    if layout.again < 1:
        each = _kept_per_layer(arch, layout, recipe, seq)
        items.append(Part(name="activations", bytes=each, how="one layer"))
    done = Part(name="gradients", bytes=int(gradients.bytes * share), how="of the layers already passed")
    return [done, *items]


def _gathered(arch: Architecture, layout: Layout, recipe: Recipe) -> list[Part]:
    """Full weights that FSDP holds temporarily: the unit in use and the next one; the head or a layer, whichever is
    larger.
    """
    if layout.zero < 3:
        return []
    whole = local_parameters(arch, layout)
    if layout.pipeline > 1:  # PyTorch keeps them for all microbatches, and adds up their gradients before the scatter
        trained = trainable_share(arch, recipe)
        return [
            Part(name="gathered weights", bytes=_up(whole * recipe.weights), how="kept for all microbatches"),
            Part(name="whole gradients", bytes=_up(whole * FP32 * trained), how="fp32 sums of all microbatches"),
        ]
    if not recipe.reshard:
        return [Part(name="gathered weights", bytes=_up(whole * recipe.weights), how="stored from forward to backward")]
    layer = (parameters.total(arch) - parameters.embeddings(arch) - parameters.routed(arch)) // arch.layers
    experts = parameters.routed(arch) // arch.layers // layout.expert_split
    size = 2 * math.ceil(recipe.weights) * (max(layer, arch.vocab * arch.hidden) // layout.tensor + experts)
    return [Part(name="gathered weights", bytes=size, how="two units, one in use and one ahead")]


def layer_activations(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> int:
    """Bytes that one layer stores for its backward pass when nothing is recomputed."""
    tokens = _tokens(layout, seq)
    kept = _activations(arch, recipe, seq, tokens, layout.tensor)
    return kept + (unfused.stored(arch, recipe.operators(layout.zero)) * tokens if recipe.unfused else 0)


def _gathered_inputs(arch: Architecture, recipe: Recipe, tokens: int, tensor: int) -> int:
    """Bytes that a tensor rank keeps of the two inputs of a layer's blocks beyond its part, if ranks share them."""
    return 2 * recipe.activations * arch.hidden * tokens * (tensor - 1) // tensor


@lru_cache(maxsize=parameters.KEPT)
def _activations(arch: Architecture, recipe: Recipe, seq: int, tokens: int, tensor: int) -> int:
    a, width = arch.attention, recipe.activations
    q = a.heads * (a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim)
    kv = 2 * a.heads * a.head_dim if a.latent else 2 * a.kv_heads * a.head_dim
    out = a.heads * (a.latent.v_dim if a.latent else a.head_dim)
    latent = 2 * (a.latent.kv_rank + (a.latent.q_rank or 0)) if a.latent else 0
    norms = FP32 * 2 * 2  # mean and deviation of two norms
    # Transformer Engine stores inputs of products in 8 bits, and the activation not at all; torchao stores 16 bits.
    small = recipe.compute == "fp8" and not recipe.keeps_gathered
    # Two norm inputs, two norm outputs; two masks of a byte with dropout. Sequence parallelism splits them.
    streams = 2 * arch.hidden * (width + (1 if small else width)) + 2 * arch.hidden * recipe.dropout + norms
    heads = FP32 * a.heads * recipe.flash  # one log-sum-exp per head
    inner = width * (q + kv + out + latent) + _mlp_bytes(arch, width, small) + heads
    split = tensor if recipe.sequence_parallel else 1
    kept = streams * tokens // split + inner * tokens // tensor + _scores(arch, recipe, seq, tokens, tensor)
    return kept + (_gathered_inputs(arch, recipe, tokens, tensor) if recipe.keeps_gathered and split > 1 else 0)


def _scores(arch: Architecture, recipe: Recipe, seq: int, tokens: int, tensor: int) -> int:
    """Attention without flash stores the softmax, its dropout mask and the result of dropout, heads x seq per token."""
    if recipe.flash:
        return 0
    each = (2 * recipe.activations + 1) if recipe.dropout else recipe.activations
    return each * arch.attention.heads * seq * tokens // tensor


def _kept_per_layer(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> int:
    every = layer_activations(arch, layout, recipe, seq)
    width = FP32 if recipe.unfused and recipe.operators(layout.zero) == "autocast" else recipe.activations
    start = width * arch.hidden * _tokens(layout, seq) // layout.tensor
    if layout.recompute == "selective":
        every = (
            start + _products(arch, layout, recipe, seq)
            if recipe.flash
            else every - _scores(arch, recipe, seq, _tokens(layout, seq), layout.tensor)
        )
    return _up(layout.again * start + (1 - layout.again) * every)


def _products(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> int:
    """Under selective recomputation with flash attention: every second product's output, and that of attention."""
    a, experts, matrices = arch.attention, arch.mlp.experts, 2 if arch.mlp.gated else 1
    width = experts.active * experts.ffn if experts else arch.mlp.width
    outputs = (a.heads + 2 * a.kv_heads) * a.head_dim + 2 * arch.hidden + matrices * width
    stored = recipe.activations * (outputs // 2 + a.heads * a.head_dim)
    return stored * _tokens(layout, seq) // layout.tensor


def _mlp_bytes(arch: Architecture, width: int, small: bool) -> int:
    """Stored per token: gate, up, their activation and product; or input and output of the activation.

    small: as Transformer Engine does in fp8, the input of the second product in 8 bits and no activation of the gate.
    """
    experts = arch.mlp.experts
    inputs = 2 if arch.mlp.gated or experts else 1
    each = inputs * width + 1 if small else 2 * inputs * width
    if experts is None:
        return each * arch.mlp.width
    routed = experts.active * (each * experts.ffn + (1 + width if small else 2 * width) * arch.hidden)
    return routed + experts.shared * each * experts.ffn + 2 * width * experts.count


def in_flight(layout: Layout, stage: int) -> float:
    """Microbatches whose activations a stage stores at once under 1F1B; interleaving adds (p - 1) / (p v)."""
    p = layout.pipeline
    count = min(p - stage, layout.microbatches)
    return count if layout.virtual == 1 else min(count * (1 + (p - 1) / (p * layout.virtual)), layout.microbatches)


def _stored(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, stage: Stage) -> list[Part]:
    flight = in_flight(layout, stage.number)
    each = _kept_per_layer(arch, layout, recipe, seq)
    how = f"{stage.layers} layers x {each} bytes x {flight:.3g} batches in flight"
    return [Part(name="activations", bytes=_up(stage.layers * each * flight), how=how)]


def _loss(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> list[Part]:
    """Final norm and cross entropy, on the last stage."""
    tokens = _tokens(layout, seq)
    norm = 2 * recipe.activations * arch.hidden * tokens // layout.tensor
    if recipe.keeps_gathered and layout.tensor > 1:  # the head's input, of all tokens
        norm += _gathered_inputs(arch, recipe, tokens, layout.tensor) // 2
    if recipe.fused_loss:
        logits = FP32 * arch.vocab * min(tokens, CHUNK) // layout.tensor
        return [Part(name="loss", bytes=logits + norm, how=f"logits of {CHUNK} tokens at a time, final norm")]
    each = recipe.logits.split if layout.tensor * layout.pipeline > 1 else recipe.logits.whole
    logits = each * arch.vocab * tokens // layout.tensor
    how = f"{each} bytes for each of {tokens} x {arch.vocab} logits, final norm"
    return [Part(name="loss", bytes=logits + norm, how=how)]
