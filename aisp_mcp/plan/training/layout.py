"""Layouts of a model over GPUs, and all that exist for a count of them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.records import Record


class Layout(Record):
    """GPUs = data x tensor x pipeline x context. Expert parallelism reuses the GPUs of the data dimension."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    zero: int = Field(default=0, description="ZeRO stage; 3 is FSDP with full sharding.")
    microbatch: int = Field(default=1, description="Sequences of one replica in one forward pass.")
    microbatches: int = Field(default=1, description="Forward passes of one replica per step.")
    checkpoint: bool = Field(default=False, description="Full activation checkpointing: every layer is recomputed.")

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context


def candidates(arch: Architecture, gpus: int, per_node: int, batch: int, seq: int) -> Iterator[Layout]:
    """Every layout that divides the model, the batch and the sequence evenly. Tensor parallelism stays in a node."""
    for tensor in _divisors(min(gpus, per_node)):
        if arch.attention.heads % tensor or gpus % tensor or arch.attention.kv_heads % min(tensor, 8):
            continue
        for pipeline in _divisors(gpus // tensor):
            if arch.layers % pipeline:
                continue
            for context in (1, *((2, 4, 8) if seq >= _LONG else ())):
                yield from _spread(arch, gpus, tensor, pipeline, context, batch)


def _spread(arch: Architecture, gpus: int, tensor: int, pipeline: int, context: int, batch: int) -> Iterator[Layout]:
    if gpus % (tensor * pipeline * context):
        return
    data = gpus // (tensor * pipeline * context)
    if batch % data:
        return
    count = arch.mlp.experts.count if arch.mlp.experts else 1
    experts = max(d for d in _divisors(data) if count % d == 0)
    mine = batch // data
    for zero in (0, 1, 3) if data > 1 else (0,):
        if zero == 3 and pipeline > 1:
            continue  # gathering every layer's weights again for each microbatch of a pipeline
        for micro in [size for size in (1, 2, 4, 8) if mine % size == 0]:
            if pipeline > 1 and mine // micro < pipeline:
                continue  # more bubble than work
            for checkpoint in (False, True):
                yield Layout(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    expert=experts,
                    zero=zero,
                    microbatch=micro,
                    microbatches=mine // micro,
                    checkpoint=checkpoint,
                )


_LONG = 32_768  # tokens from which splitting one sequence over GPUs is worth looking at


def _divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0]
