"""Reason why no layout exists: the first rule that excludes the caller's fixed values, with the nearest valid sizes."""

from __future__ import annotations

from collections.abc import Mapping

from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.training.layout import splits_heads


def reason(arch: Architecture, gpus: int, per_node: int, batch: int, fixed: Mapping[str, int | str]) -> tuple[str, str]:
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
    mine = batch // replicas
    micro, virtual, expert = (int(fixed.get(name, 1)) for name in ("microbatch", "virtual", "expert"))
    pipeline = int(fixed.get("pipeline", 1))
    if mine % micro:
        return f"microbatch {micro} does not divide the {mine} sequences of a replica.", "Use a divisor of it."
    if virtual > 1 and arch.layers < pipeline * virtual:
        text = f"{arch.layers} layers do not fill {pipeline} stages of {virtual} chunks."
        return text, f"Use at most {max(1, arch.layers // pipeline)} chunks."
    if expert > 1 and (arch.mlp.experts is None or arch.mlp.experts.count % expert or ranks % expert):
        count = arch.mlp.experts.count if arch.mlp.experts else 0
        text = f"expert {expert} does not divide {count} experts and the {ranks} GPUs of a pipeline stage."
        return text, "Use a divisor of both."
    return None
