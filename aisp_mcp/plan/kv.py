"""Bytes of the attention cache, exactly: grouped queries, latent attention, sliding windows, recurrent state."""

from __future__ import annotations

from fractions import Fraction

from pydantic import Field

from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.records import Record

# Bytes per cached element. nvfp4 keeps one fp8 scale for 16 elements.
ELEMENT = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "nvfp4": Fraction(9, 16),
}
FP32 = 4


class KvCache(Record):
    """The cache of `sequences` sequences of `tokens` tokens. A token beyond a window only costs the global layers."""

    kind: str
    total_bytes: int
    bytes_per_sequence: int
    bytes_per_token: int = Field(description="Of one more token while no window is full.")
    elements_per_token: int
    fixed_bytes_per_sequence: int = Field(description="Recurrent state, whatever the length.")
    window_layers: int = 0
    window_tokens: int | None = None


def per_layer(arch: Architecture) -> int:
    """Elements per token in one attending layer."""
    a = arch.attention
    if a.cached is not None:
        return a.cached
    return a.latent.kv_rank + a.latent.rope_dim if a.latent else 2 * a.kv_heads * a.head_dim


def _per_window_layer(arch: Architecture) -> int:
    """The same in a layer with a window, which may have other heads."""
    a, window = arch.attention, arch.attention.window
    if window is None or (window.kv_heads is None and window.head_dim is None):
        return per_layer(arch)
    return 2 * (window.kv_heads or a.kv_heads) * (window.head_dim or a.head_dim)


def fixed_bytes(arch: Architecture, dtype: str) -> int:
    """Recurrent state of one sequence: convolution window in the model's dtype (16 bit at least), the rest in fp32."""
    state = arch.recurrent
    if state is None:
        return 0
    wide = max(ELEMENT[dtype], ELEMENT["bf16"])
    return int(state.layers * (state.elements * wide + state.fp32_elements * FP32))


def sequence_bytes(arch: Architecture, tokens: int, dtype: str) -> int:
    """Cache of one sequence of that length."""
    a, size = arch.attention, ELEMENT[dtype]
    windowed = a.window.layers if a.window else 0
    cached = min(tokens, a.window.tokens) if a.window else tokens
    entries = Fraction(tokens) / Fraction(a.stride)
    whole = (a.layers - windowed) * entries * per_layer(arch) * size
    return int(whole + windowed * cached * _per_window_layer(arch) * size) + fixed_bytes(arch, dtype)


def cache(arch: Architecture, tokens: int, sequences: int, dtype: str) -> KvCache:
    """The whole cache. dtype: a key of ELEMENT."""
    a = arch.attention
    sequence = sequence_bytes(arch, tokens, dtype)
    windowed = a.window.layers if a.window else 0
    elements = int((a.layers - windowed) * per_layer(arch) / a.stride) + windowed * _per_window_layer(arch)
    return KvCache(
        kind=kind(arch),
        total_bytes=sequence * sequences,
        bytes_per_sequence=sequence,
        bytes_per_token=int(elements * ELEMENT[dtype]),
        elements_per_token=elements,
        fixed_bytes_per_sequence=fixed_bytes(arch, dtype),
        window_layers=a.window.layers if a.window else 0,
        window_tokens=a.window.tokens if a.window else None,
    )


def kind(arch: Architecture) -> str:
    """Words for the attention: MHA, GQA, MQA or MLA, with sliding window and hybrid if they apply."""
    a = arch.attention
    base = "MLA" if a.latent else "MQA" if a.kv_heads == 1 else "MHA" if a.kv_heads == a.heads else "GQA"
    extra = [word for word, on in (("sliding window", a.window), ("hybrid", arch.recurrent)) if on]
    return ", ".join([base, *extra])
