"""Layouts of a model over GPUs, their enumeration for a number of GPUs, and the rule that excludes all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.records import Record

Recompute = Literal["none", "selective", "full"]
RECOMPUTES = ("none", "selective", "full")
LONG = 4096  # tokens per GPU; a sequence is not split below this, as tensor parallelism is tried first
MOST_CONTEXT = 16
SPARED = 2  # the stages of the embedding and of the head may have this many layers fewer than the others


class Layout(Record):
    """GPUs = data x tensor x pipeline x context. Expert parallelism reuses all GPUs of a stage."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual: int = Field(default=1, description="Model chunks of one pipeline stage (interleaved 1F1B).")
    zero: int = Field(default=0, description="ZeRO stage; 3 is FSDP with full sharding.")
    microbatch: int = Field(default=1, description="Sequences of one replica in one forward pass.")
    microbatches: int = Field(default=1, description="Forward passes of one replica per step.")
    recompute: Recompute = Field(
        default="none",
        description="selective: attention scores, or with flash attention half of the products; full: whole layers.",
    )
    recomputed: float = Field(default=1.0, description="Under full: share of the layers, the rest is stored.")

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def shards(self) -> int:
        """GPUs over which ZeRO divides states: replicas of one part of the model, including context ranks."""
        return self.data * self.context

    @property
    def again(self) -> float:
        """Share of the layers that run forward twice."""
        return self.recomputed if self.recompute == "full" else 0.0

    @property
    def expert_split(self) -> int:
        """GPUs over which the routed experts are divided, as whole experts or as slices of all of them."""
        return self.expert if self.expert > 1 else self.tensor


def stage_layers(arch: Architecture, pipeline: int) -> list[int]:
    """Layers of each pipeline stage; the first ones take the remainder."""
    each, more = divmod(arch.layers, pipeline)
    return [each + (stage < more) for stage in range(pipeline)]


def most_layers(arch: Architecture, layout: Layout) -> int:
    """Layers of the fullest stage."""
    return -(-arch.layers // layout.pipeline)


def candidates(
    arch: Architecture, gpus: int, per_node: int, batch: int, seq: int, fixed: dict[str, int | str] | None = None
) -> Iterator[Layout]:
    """Every layout that divides heads, experts, batch and sequence evenly; stages may be uneven.

    fixed: fields of the layout that the caller has chosen. Tensor parallelism stays inside a node.
    """
    want = fixed or {}
    for tensor in _chosen(want, "tensor", _divisors(math.gcd(gpus, per_node))):
        if not splits_heads(arch, tensor) or gpus % tensor:
            continue
        for pipeline in _chosen(want, "pipeline", _divisors(gpus // tensor)):
            if arch.layers < pipeline or gpus // tensor % pipeline:
                continue
            for context in _chosen(want, "context", _contexts(seq)):
                rest = gpus // tensor // pipeline
                if rest % context == 0 and seq % context == 0 and batch % (rest // context) == 0:
                    base = Layout(data=rest // context, tensor=tensor, pipeline=pipeline, context=context)
                    yield from _scheduled(arch, base, per_node, batch, want)


def splits_heads(arch: Architecture, tensor: int) -> bool:
    """Return True if tensor parallelism divides the heads; key-value heads may be copied, evenly."""
    a = arch.attention
    return a.heads % tensor == 0 and (a.latent is not None or max(a.kv_heads, tensor) % min(a.kv_heads, tensor) == 0)


def _scheduled(
    arch: Architecture, base: Layout, per_node: int, batch: int, want: dict[str, int | str]
) -> Iterator[Layout]:
    per_replica = batch // base.data
    micros = [size for size in _chosen(want, "microbatch", [1, 2, 4, 8]) if per_replica % size == 0]
    count = arch.mlp.experts.count if arch.mlp.experts else 1
    experts = _chosen(want, "expert", _experts(arch, base, per_node))
    experts = [size for size in experts if base.shards * base.tensor % size == 0 and count % size == 0]
    modes = [mode for mode in RECOMPUTES if mode == want.get("recompute", mode)]
    for micro in micros:
        if base.pipeline > 1 and per_replica // micro < base.pipeline and "pipeline" not in want:
            continue  # more bubble than work
        chunks = _chosen(want, "virtual", _virtual(arch, base, per_replica // micro))
        # Frameworks count embedding and head as layers of the first and last chunk.
        chunks = [size for size in chunks if size == 1 or base.pipeline * size <= arch.layers + SPARED]
        for zero, virtual, expert, mode in itertools.product(_zeros(base, want), chunks, experts, modes):
            # Sizes were checked above; model_construct keeps a search of thousands fast.
            more = {"zero": zero, "virtual": virtual, "expert": expert, "recompute": mode}
            more |= {"microbatch": micro, "microbatches": per_replica // micro}
            yield Layout.model_construct(**(base.__dict__ | more))


def _zeros(base: Layout, want: dict[str, int | str]) -> list[int]:
    """ZeRO stages to try: with a pipeline, sharded gradients or weights would be sent again for each microbatch."""
    if "zero" in want:
        zero = int(want["zero"])
        return [zero] if zero == 0 or base.shards > 1 or base.gpus == 1 else []
    return [0] if base.shards == 1 else [0, 1] if base.pipeline > 1 else [0, 1, 2, 3]


def _chosen(want: dict[str, int | str], name: str, sizes: list[int]) -> list[int]:
    return [int(want[name])] if name in want else sizes


def _contexts(seq: int) -> list[int]:
    return [size for size in _divisors(MOST_CONTEXT) if size == 1 or (seq % size == 0 and seq // size >= LONG)]


def _virtual(arch: Architecture, base: Layout, microbatches: int) -> list[int]:
    """Interleaving to try: it needs equal chunks, up to two layers, and groups of microbatches as large as the
    pipeline.
    """
    if base.pipeline == 1 or microbatches % base.pipeline:
        return [1]
    return [size for size in (1, 2, 4) if -arch.layers % (base.pipeline * size) <= SPARED or size == 1]


def _experts(arch: Architecture, base: Layout, per_node: int) -> list[int]:
    """Expert splits to try: none, the widest inside a node, the widest of all."""
    if arch.mlp.experts is None:
        return [1]
    sizes = _divisors(math.gcd(arch.mlp.experts.count, base.shards * base.tensor))
    inside = [size for size in sizes if size <= per_node]
    return sorted({1, max(inside, default=1), sizes[-1]})


def _divisors(value: int) -> list[int]:
    low = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return sorted({*low, *(value // d for d in low)})


# --- the first rule that excludes the caller's fixed values, with the nearest valid sizes


def excluded_reason(
    arch: Architecture, gpus: int, per_node: int, batch: int, fixed: Mapping[str, int | str]
) -> tuple[str, str]:
    """The message and the hint of the error: the rule that excludes every layout, and a remedy."""
    sizes = {name: int(fixed.get(name, 1)) for name in ("tensor", "pipeline", "context")}
    tensor, pipeline, context = sizes.values()
    group = tensor * pipeline * context
    named = " x ".join(f"{name} {size}" for name, size in sizes.items() if name in fixed)
    heads = arch.attention.heads
    if not splits_heads(arch, tensor):
        good = [n for n in range(1, min(heads, per_node) + 1) if splits_heads(arch, n)]
        return f"tensor {tensor} does not divide {heads} heads.", f"Tensor sizes that do: {good}."
    if pipeline > arch.layers:
        return f"{arch.layers} layers do not fill {pipeline} pipeline stages.", f"Use at most {arch.layers} stages."
    if gpus % group:
        return f"{named} = {group} does not divide {gpus} GPUs.", f"Use a multiple of {group} GPUs."
    if fixed.get("zero") and gpus > 1 and gpus // (tensor * pipeline) == 1:
        return (
            f"zero {fixed['zero']} needs several data ranks: {named} takes all {gpus} GPUs.",
            "Split less, or zero 0.",
        )
    fitting = _schedule(arch, batch, gpus // group, gpus // pipeline, fixed)
    if fitting is not None:
        return fitting
    replicas = gpus // group
    low = batch // replicas * replicas
    near = " or ".join(str(size) for size in (low, low + replicas) if size)
    return (
        f"A batch of {batch} sequences does not divide over {replicas} replicas"
        + (f" ({gpus} GPUs / {named})." if named else " of one GPU, nor over fewer replicas of split models."),
        f"Nearest batches that do: {near}; or fix other sizes.",
    )


def _schedule(
    arch: Architecture, batch: int, replicas: int, ranks: int, fixed: Mapping[str, int | str]
) -> tuple[str, str] | None:
    """Rules about microbatches, chunks and experts, for replicas that are known to divide the batch."""
    if batch % replicas:
        return None
    per_replica = batch // replicas
    micro, virtual, expert = (int(fixed.get(name, 1)) for name in ("microbatch", "virtual", "expert"))
    pipeline = int(fixed.get("pipeline", 1))
    if per_replica % micro:
        return f"microbatch {micro} does not divide the {per_replica} sequences of a replica.", "Use a divisor of it."
    if virtual > 1 and arch.layers + SPARED < pipeline * virtual:
        text = f"{arch.layers} layers do not fill {pipeline} stages of {virtual} chunks."
        return text, f"Use at most {max(1, arch.layers // pipeline)} chunks."
    if expert > 1 and (arch.mlp.experts is None or arch.mlp.experts.count % expert or ranks % expert):
        count = arch.mlp.experts.count if arch.mlp.experts else 0
        text = f"expert {expert} does not divide {count} experts and the {ranks} GPUs of a pipeline stage."
        return text, "Use a divisor of both."
    return None
