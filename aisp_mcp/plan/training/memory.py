"""Peak memory of a training step on the fullest GPU, itemised.

Stored activations are those PyTorch keeps for a pre-norm decoder with flash attention and a gated MLP; the synthetic
transformer (probes/transformer.py) is that model, and docs/planners.md shows predictions beside its measured peaks.
Gradients are freed after each step, as zero_grad does by default. While the backward pass frees activations it makes
gradients, so the peak is at one of its ends: when the loss is differentiated, in the first or last layer that it
passes, or when the optimizer has all gradients.
"""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.plan import parameters
from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.records.plan import Item
from aisp_mcp.plan.training.layout import Layout
from aisp_mcp.records import Record

FP32 = 4
LOSS_COPIES = 3  # fp32 logits-sized tensors alive in the backward of cross entropy: log-probabilities and two gradients


class Recipe(Record):
    """Bytes per parameter, and the width of activations."""

    name: str
    weights: int
    gradients: int
    optimizer: int = Field(description="Moments, and the fp32 copy of the weights where there is one.")
    activations: int


RECIPES = {
    "mixed": Recipe(name="mixed", weights=2, gradients=2, optimizer=12, activations=2),
    "bf16": Recipe(name="bf16", weights=2, gradients=2, optimizer=4, activations=2),
    "fp32": Recipe(name="fp32", weights=4, gradients=4, optimizer=8, activations=4),
}


class TrainingMemory(Record):
    """peak_bytes is the largest of four moments; items add up to it."""

    peak_bytes: int
    moment: str = Field(description="When the peak is reached.")
    items: list[Item]


def training(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, workspace: int = 0) -> TrainingMemory:
    """Memory of the first pipeline stage, which holds most: the embedding and one batch per stage in flight.

    workspace: bytes of library workspaces, a constant of device and framework.
    """
    mine = local_parameters(arch, layout)
    share = recipe.gradients / (layout.data if layout.zero >= 2 else 1)
    gradients = Item(name="gradients", bytes=int(mine * share), how=f"{recipe.gradients} bytes per parameter")
    kept = _stored(arch, layout, recipe, seq)
    moments = {
        "start of backward": [*kept, *_loss(arch, layout, recipe, seq)],
        "backward of the last layer": [*kept, *_layer_backward(arch, layout, recipe, seq)],
        "backward of the first layer": _last_backward(arch, layout, recipe, seq, share),
        "optimizer step": [gradients],
    }
    if layout.microbatches > 1:  # gradients of earlier microbatches are there all the time
        moments = {name: [gradients, *(i for i in items if i is not gradients)] for name, items in moments.items()}
    moment, items = max(moments.items(), key=lambda entry: sum(i.bytes for i in entry[1]))
    items = [*_states(mine, layout, recipe), *_gathered(arch, layout, recipe), *items]
    if workspace:
        items.append(Item(name="library workspaces", bytes=workspace, how="cuBLAS, one per thread that calls it"))
    return TrainingMemory(peak_bytes=sum(i.bytes for i in items), moment=moment, items=items)


def _layer_backward(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> list[Item]:
    """Temporaries of one layer's backward pass, and its recomputed activations under checkpointing."""
    tokens = layout.microbatch * seq // layout.context
    experts = arch.mlp.experts
    width = experts.active * experts.ffn if experts else arch.mlp.width
    spare = recipe.activations * tokens * (2 * width + arch.hidden) // layout.tensor
    items = [Item(name="backward temporaries", bytes=spare, how="two gradients of MLP width, one of the residual")]
    if layout.checkpoint:
        each = layer_activations(arch, layout, recipe, tokens)
        items.append(Item(name="recomputed layer", bytes=each, how="one layer's activations again"))
    return items


def _last_backward(arch: Architecture, layout: Layout, recipe: Recipe, seq: int, share: float) -> list[Item]:
    """The last layer that the backward pass reaches: all other gradients are there, its activations still are."""
    tokens = layout.microbatch * seq // layout.context
    layers = arch.layers // layout.pipeline
    tables = parameters.embeddings(arch) // layout.tensor // (1 if arch.tied else 2)
    done = (local_parameters(arch, layout) - tables) * (layers - 1) / layers if layers else 0
    each = layer_activations(arch, layout, recipe, tokens)
    items = _layer_backward(arch, layout, recipe, seq)
    if not layout.checkpoint:
        items.append(Item(name="activations", bytes=each, how="one layer"))
    return [Item(name="gradients", bytes=int(done * share), how="of the layers already passed"), *items]


def local_parameters(arch: Architecture, layout: Layout) -> int:
    """Parameters whose weights one GPU of the first stage computes with, before any ZeRO sharding."""
    tables = parameters.embeddings(arch)
    if layout.pipeline > 1:
        tables //= 1 if arch.tied else 2
    experts = parameters.routed(arch)
    rest = parameters.total(arch) - experts - parameters.embeddings(arch)
    layers = rest / layout.tensor + experts / layout.tensor / layout.expert
    return int(tables / layout.tensor + layers / layout.pipeline)


def _states(mine: int, layout: Layout, recipe: Recipe) -> list[Item]:
    weights = mine * recipe.weights // (layout.data if layout.zero >= 3 else 1)
    moments = mine * recipe.optimizer // (layout.data if layout.zero >= 1 else 1)
    shard = f", divided by {layout.data} (ZeRO-{layout.zero})" if layout.zero else ""
    return [
        Item(name="weights", bytes=weights, how=f"{recipe.weights} bytes x {mine} parameters"),
        Item(name="optimizer", bytes=moments, how=f"{recipe.optimizer} bytes per parameter{shard}"),
    ]


def _gathered(arch: Architecture, layout: Layout, recipe: Recipe) -> list[Item]:
    """Full weights that FSDP holds for a moment: the unit in use and the next one; the head or a layer, the larger."""
    if layout.zero < 3:
        return []
    layer = (parameters.total(arch) - parameters.embeddings(arch) - parameters.routed(arch)) // arch.layers
    layer += parameters.routed(arch) // layout.expert // arch.layers
    size = 2 * recipe.weights * max(layer, arch.vocab * arch.hidden) // layout.tensor
    return [Item(name="gathered weights", bytes=size, how="two units, one in use and one ahead")]


def layer_activations(arch: Architecture, layout: Layout, recipe: Recipe, tokens: int) -> int:
    """Bytes one layer keeps for its backward pass. Norms and residuals are split too: sequence parallelism is on."""
    a, width = arch.attention, recipe.activations
    q = a.heads * (a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim)
    kv = 2 * a.heads * a.head_dim if a.latent else 2 * a.kv_heads * a.head_dim
    out = a.heads * (a.latent.v_dim if a.latent else a.head_dim)
    latent = 2 * (a.latent.kv_rank + (a.latent.q_rank or 0)) if a.latent else 0
    streams = 4 * arch.hidden  # two norm inputs, two norm outputs
    statistics = FP32 * (2 * 2 + a.heads)  # mean and deviation of two norms, one log-sum-exp per head
    elements = streams + q + kv + out + latent + _mlp_elements(arch)
    return (width * elements + statistics) * tokens // layout.tensor


def _mlp_elements(arch: Architecture) -> int:
    """Kept per token: gate, up, their activation and product; or input and output of the activation."""
    experts, copies = arch.mlp.experts, 4 if arch.mlp.gated else 2
    if experts is None:
        return copies * arch.mlp.width
    routed = experts.active * (4 * experts.ffn + 2 * arch.hidden)
    return routed + experts.shared * 4 * experts.ffn + 2 * experts.count


def _stored(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> list[Item]:
    tokens = layout.microbatch * seq // layout.context
    layers = arch.layers // layout.pipeline
    flight = min(layout.pipeline, layout.microbatches)
    each = layer_activations(arch, layout, recipe, tokens)
    border = recipe.activations * arch.hidden * tokens // layout.tensor
    per_batch = layers * (border if layout.checkpoint else each)
    how = f"{layers} layers x {border if layout.checkpoint else each} bytes x {flight} batches in flight"
    return [Item(name="activations", bytes=per_batch * flight, how=how)]


def _loss(arch: Architecture, layout: Layout, recipe: Recipe, seq: int) -> list[Item]:
    """Final norm and cross entropy; with a pipeline they are on the last stage, which holds one batch in flight."""
    if layout.pipeline > 1:
        return []
    tokens = layout.microbatch * seq // layout.context
    logits = LOSS_COPIES * FP32 * arch.vocab * tokens // layout.tensor
    norm = 2 * recipe.activations * arch.hidden * tokens // layout.tensor
    how = f"{LOSS_COPIES} fp32 copies of {tokens} x {arch.vocab} logits, final norm"
    return [Item(name="loss", bytes=logits + norm, how=how)]
