"""Serving a model: memory next to the weights, and the flags for it. `rate.py` predicts times."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan import parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.records import Engine, Item, WeightFormat
from aisp_mcp.plan.serving.rate import Layout, Served, cache_bytes
from aisp_mcp.records import Record

GIB = 1 << 30


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


def fit(served: Served, layout: Layout, tokens: int, engine: Engine) -> Fit:
    """Itemise the memory of one replica for sequences of `tokens`."""
    budget = cache_budget(served, layout, engine)
    overhead = engine.overhead_bytes * layout.gpus
    weights = int(memory_bytes(served.facts) * engine.utilization) * layout.gpus - overhead - budget
    copied = "; all but experts on every GPU" if layout.data_attention else ""
    sequence = int(sequence_bytes(served, layout, tokens, engine))
    items = [
        Item(name="weights", bytes=weights, how=f"{served.weights.name}, embedding and head in 16 bit{copied}"),
        Item(name="engine", bytes=overhead, how=f"allowance per GPU x {layout.gpus}"),
        Item(name="cache", bytes=max(budget, 0), how=f"what is left of {engine.utilization:.0%} of device memory"),
    ]
    return Fit(
        items=items, cache_budget_bytes=budget, kv_bytes_per_sequence=sequence, concurrency=max(0, budget // sequence)
    )


def sequence_bytes(served: Served, layout: Layout, tokens: int, engine: Engine) -> float:
    """Cache of one sequence in whole blocks, over all GPUs of the replica, including copies."""
    return cache_bytes(served, layout, -(-tokens // engine.block_tokens) * engine.block_tokens)


def cache_budget(served: Served, layout: Layout, engine: Engine) -> int:
    """Bytes for the cache over all GPUs of a replica, next to weights, the engine and the stated margin."""
    usable = int(memory_bytes(served.facts) * engine.utilization) * layout.gpus
    weights = weight_bytes(served.arch, served.weights)
    if layout.data_attention:  # everything except the routed experts is on every GPU
        dense = (parameters.total(served.arch) - parameters.routed(served.arch)) * served.weights.bytes
        weights += int(dense * (layout.tensor - 1))
    return usable - weights - engine.overhead_bytes * layout.gpus
