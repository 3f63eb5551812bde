"""Serving a model: memory next to the weights, and the flags for it. `rate.py` predicts times."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import kv, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Engine, Item, WeightFormat
from aisp_mcp.plan.serving.rate import Layout, Served
from aisp_mcp.records import Record

GIB = 1 << 30


class Setting(Record):
    """One way to serve: GPUs of one replica, formats, lengths."""

    tensor: int
    weights: WeightFormat
    kv_dtype: str
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        """Length of a finished sequence."""
        return self.prompt + self.output


class Fit(Record):
    """Memory of one replica over all of its GPUs."""

    items: list[Item]
    cache_budget_bytes: int = Field(description="Left for the cache; negative when the weights do not fit.")
    kv_bytes_per_sequence: int
    concurrency: int = Field(description="Whole sequences of prompt + output tokens that fit at once.")


def memory_bytes(facts: GpuFacts) -> int:
    """As the device reports it, if known, else as sold (decimal)."""
    return facts.memory.reported_bytes or int(facts.memory.sold_gb * 1e9)


def weight_bytes(arch: Architecture, weights: WeightFormat) -> int:
    """Layers in the format; embedding and head stay in 16 bits, as in the engines."""
    tables = parameters.embeddings(arch)
    return int((parameters.total(arch) - tables) * weights.bytes + tables * 2)


def fit(arch: Architecture, setting: Setting, facts: GpuFacts, engine: Engine) -> Fit:
    """Itemise the memory of one replica."""
    usable = int(memory_bytes(facts) * engine.utilization) * setting.tensor
    weights = weight_bytes(arch, setting.weights)
    overhead = engine.overhead_bytes * setting.tensor
    budget = usable - weights - overhead
    sequence = kv.sequence_bytes(arch, _blocks(setting.tokens, engine.block_tokens), setting.kv_dtype) * _copies(
        arch, setting
    )
    items = [
        Item(name="weights", bytes=weights, how=f"{setting.weights.name}, embedding and head in 16 bit"),
        Item(name="engine", bytes=overhead, how=f"allowance per GPU x {setting.tensor}"),
        Item(name="cache", bytes=max(budget, 0), how=f"what is left of {engine.utilization:.0%} of device memory"),
    ]
    return Fit(
        items=items, cache_budget_bytes=budget, kv_bytes_per_sequence=sequence, concurrency=max(0, budget // sequence)
    )


def cache_budget(served: Served, layout: Layout, engine: Engine) -> int:
    """Bytes for the cache over all GPUs of a replica, next to weights, the engine and the stated margin."""
    usable = int(memory_bytes(served.facts) * engine.utilization) * layout.gpus
    weights = weight_bytes(served.arch, served.weights)
    if layout.data_attention:  # everything except the routed experts is on every GPU
        dense = (parameters.total(served.arch) - parameters.routed(served.arch)) * served.weights.bytes
        weights += int(dense * (layout.tensor - 1))
    return usable - weights - engine.overhead_bytes * layout.gpus


def _blocks(tokens: int, block: int) -> int:
    """Tokens rounded up to whole cache blocks."""
    return -(-tokens // block) * block


def _copies(arch: Architecture, setting: Setting) -> int:
    """Copies of the key-value cache: latent attention, and ranks beyond the number of key-value heads, have
    replicas.
    """
    a = arch.attention
    return setting.tensor if a.latent else max(1, setting.tensor // a.kv_heads)
