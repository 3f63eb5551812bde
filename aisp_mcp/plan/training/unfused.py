"""Bytes that a decoder of transformers moves and stores where PyTorch runs its operators one by one.

Counted, not fitted: every operator that a layer of transformers' Llama, Qwen3 and OPT dispatches (version 5.24, PyTorch
2.13) except products and attention, with the bytes of its operands and results; validation/count_operators.py counts
again. Autocast keeps weights in fp32, so the residual stream and the norms are fp32 too, and what enters a product is
cast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from aisp_mcp.plan import parameters
from aisp_mcp.plan.architecture import Architecture

Precision = Literal["16 bits", "autocast", "fp32"]


class Moved(NamedTuple):
    """Bytes per element in the forward and the backward pass."""

    forward: int
    backward: int

    def passes(self, again: float) -> float:
        """Of one step; again: share of the layers whose forward pass is repeated."""
        return self.forward * (1 + again) + self.backward


class Layer(NamedTuple):
    """Of a norm, with what its backward pass adds up, and a sum of the residual stream; of the activation of an MLP; of
    rotary positions and norms of queries and keys. stored: bytes per element of the stream, and of normed queries and
    keys, beyond those of fused kernels.
    """

    norm: Moved
    sum: Moved
    activation: Moved
    rotary: Moved
    head_norm: Moved
    stored: int
    stored_heads: int


NOTHING = Moved(0, 0)
# RMS norms in several operators, gated MLPs and rotary positions; layer norms in one operator, without the others.
GATED = {
    "16 bits": Layer(Moved(36, 101), Moved(6, 6), Moved(10, 18), Moved(20, 32), Moved(37, 93), 8, 6),
    "autocast": Layer(Moved(43, 131), Moved(10, 12), Moved(10, 18), Moved(36, 58), Moved(49, 117), 18, 6),
    "fp32": Layer(Moved(28, 110), Moved(12, 12), Moved(20, 36), Moved(40, 64), Moved(29, 93), 8, 8),
}
PLAIN = {
    "16 bits": Layer(Moved(6, 19), Moved(6, 6), Moved(4, 8), NOTHING, NOTHING, 0, 0),
    "autocast": Layer(Moved(22, 49), Moved(10, 12), Moved(4, 8), NOTHING, NOTHING, 8, 0),
    "fp32": Layer(Moved(12, 38), Moved(12, 12), Moved(8, 16), NOTHING, NOTHING, 0, 0),
}
CASTS = Moved(6, 6)  # of a weight to 16 bits and of its gradient to 32
CLIP_PASSES = 3  # over gradients, to find their norm and to scale them


@lru_cache(maxsize=parameters.KEPT)
def moved(arch: Architecture, precision: Precision, again: float) -> float:
    """Bytes per token and layer of one step."""
    a, experts, layer = arch.attention, arch.mlp.experts, _layer(arch, precision)
    heads = (a.heads + a.kv_heads) * a.head_dim
    width = experts.active * experts.ffn if experts else arch.mlp.width
    each = [
        (layer.norm, arch.norms * arch.hidden),
        (layer.sum, 2 * arch.hidden),
        (layer.activation, width),
        (layer.rotary, heads),
        (layer.head_norm, heads * a.qk_norm),
    ]
    return sum(bytes_moved.passes(again) * elements for bytes_moved, elements in each)


def stored(arch: Architecture, precision: Precision) -> int:
    """Bytes per token and layer that the backward pass needs, beyond those of fused kernels."""
    a, layer = arch.attention, _layer(arch, precision)
    return layer.stored * arch.hidden + layer.stored_heads * (a.heads + a.kv_heads) * a.head_dim * a.qk_norm


def _layer(arch: Architecture, precision: Precision) -> Layer:
    return (GATED if arch.mlp.gated or arch.mlp.experts else PLAIN)[precision]
