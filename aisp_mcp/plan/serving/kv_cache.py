"""The attention cache of a model or of plain numbers: its bytes, and the sequences that a budget holds."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import kv, lookup
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.records import Planned
from aisp_mcp.plan.serving import model as serving
from aisp_mcp.records import Record

ASSUMED = "MHA, assumed"
OPEN = ("MLA", "MQA", "GQA or MHA")  # kinds of described caches whose number of query heads is not given


class Capacity(Record):
    """Capacity of a cache of fixed size."""

    bytes: int
    blocks: int
    tokens: int = Field(description="While no window is full.")
    sequences: int = Field(description="Whole sequences of the requested length, in whole blocks.")


class KvAnswer(Record):
    """The cache, and the size for a model with as many key-value as query heads, if their number is known."""

    headline: str
    cache: kv.KvCache
    if_all_heads_cached_bytes: int | None
    capacity: Capacity | None = Field(default=None, description="Of the budget or the blocks given.")


def kv_answer(arch: Architecture, tokens: int, batch: int, dtype: str, kind: str | None = None) -> Planned[KvAnswer]:
    """Exact bytes, without a band. kind: the name of a described cache for which the caller left something open, see
    plain.
    """
    a = arch.attention
    cache = kv.cache(arch, tokens, batch, dtype)
    full = 2 * arch.layers * a.heads * (a.latent.v_dim if a.latent else a.head_dim)
    return Planned[KvAnswer](
        answer=KvAnswer(
            headline=f"{arch.name}: {cache.total_bytes / serving.GIB:.4g} GiB of {dtype} cache for {batch} x {tokens} "
            f"tokens, {cache.bytes_per_token:,} bytes a token ({kind or cache.kind}).",
            cache=cache.model_copy(update={"kind": kind}) if kind else cache,
            if_all_heads_cached_bytes=None if kind in OPEN else int(full * tokens * batch * kv.ELEMENT[dtype]),
        ),
        assumptions=lookup.first(
            *arch.assumed,
            "Every query head has its own key and value: with kv_heads of a GQA model it is that many times less."
            if kind == ASSUMED
            else None,
            "Recurrent state in fp32, convolution window in 16 bit." if arch.recurrent else None,
            "Exact arithmetic: no band.",
        ),
        band={},
        not_modelled=["Rounding up to cache blocks; scales of quantised caches, except those of nvfp4."],
        definitions={
            "bytes_per_token": "one more token of one sequence, all layers, before any window is full",
            "if_all_heads_cached_bytes": "with as many key-value as query heads; null: the query heads are not given",
        },
        check_here="the engine's start-up log: vLLM prints GPU KV cache size in tokens",
        sources=lookup.sources(None, arch),
    )


def with_capacity(
    answer: Planned[KvAnswer], tokens: int, budget_gib: float | None, blocks: int | None
) -> Planned[KvAnswer]:
    """Add the capacity of a cache of that many GiB or blocks. Raises UsageError TWO_BUDGETS, BAD_BUDGET."""
    if budget_gib is None and blocks is None:
        return answer
    if budget_gib is not None and blocks is not None:
        raise UsageError("TWO_BUDGETS", "budget_gib and blocks fix the same memory.", "Give one of them.")
    cache, size = answer.answer.cache, knowledge.engine().block_tokens
    block = cache.bytes_per_token * size
    if budget_gib is not None and not budget_gib * serving.GIB < 1 << 62:
        raise UsageError("BAD_BUDGET", "budget_gib is not a number of GiB.", "Such as budget_gib=40.")
    total = int(budget_gib * serving.GIB) if budget_gib is not None else (blocks or 0) * block
    padded = cache.bytes_per_sequence + (-tokens % size) * cache.bytes_per_token * (cache.window_tokens is None)
    capacity = Capacity(bytes=total, blocks=total // block, tokens=total // block * size, sequences=total // padded)
    text = f"{capacity.bytes / serving.GIB:.4g} GiB hold {capacity.sequences:,} sequences of {tokens} tokens; "
    update = {"capacity": capacity, "headline": text + answer.answer.headline}
    return answer.model_copy(update={"answer": answer.answer.model_copy(update=update)})


def plain(
    layers: int | None,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    latent: int | None = None,
) -> tuple[Architecture, str | None]:
    """An architecture used only for its cache, and the kind of cache if the numbers do not determine it.

    latent: elements per token and layer of an MLA cache. Raises UsageError NO_SHAPE, BAD_SHAPE.
    """
    if hidden and heads and not (head_dim or latent):
        head_dim = _share(hidden, heads, "hidden", "heads")
    if hidden and head_dim and not (heads or latent):
        heads = _share(hidden, head_dim, "hidden", "head_dim")
    if heads and kv_heads:
        _share(heads, kv_heads, "heads", "kv_heads")
    if layers and latent:
        known = heads and head_dim
        shape, width = (heads, head_dim) if heads and head_dim else (1, latent)
        rest = {"kv_rank": latent, "rope_dim": 0, "nope_dim": width, "v_dim": width}
        return _attending(layers, shape, shape, width, latent=rest), None if known else "MLA"
    if layers and head_dim and (heads or kv_heads):
        kind = ("MQA" if kv_heads == 1 else "GQA or MHA") if not heads else None if kv_heads else ASSUMED
        return _attending(layers, heads or kv_heads or 1, kv_heads or heads or 1, head_dim), kind
    if layers and hidden and not kv_heads:  # one head of that width is as large as all heads together
        return _attending(layers, 1, 1, hidden), ASSUMED
    raise UsageError(
        "NO_SHAPE",
        "The numbers do not determine how many elements a layer stores per token.",
        "Give model; or layers with heads or kv_heads and head_dim; with hidden, better also heads; or with latent.",
    )


def _share(whole: int, part: int, of: str, by: str) -> int:
    if whole % part:
        raise UsageError("BAD_SHAPE", f"{of} {whole} is not a multiple of {by} {part}.", "Take both from config.json.")
    return whole // part


def _attending(layers: int, heads: int, kv_heads: int, head_dim: int, **more: Any) -> Architecture:
    attention = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "layers": layers, **more}
    shape = {"layers": layers, "hidden": heads * head_dim, "vocab": 1, "attention": attention, "mlp": {"width": 1}}
    return Architecture.model_validate({"name": "described", "source": "the caller", **shape})
