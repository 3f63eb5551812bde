"""Weight formats: those that a GPU multiplies natively, the order in which a plan tries them, and their comparison."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.machine.datasheets.load import GpuFacts, cite
from aisp_mcp.plan import lookup
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.records import Planned, Source, WeightFormat
from aisp_mcp.plan.savings.techniques import Excluded
from aisp_mcp.plan.serving import model as serving
from aisp_mcp.plan.serving import rate
from aisp_mcp.plan.serving.rate import Layout, Served
from aisp_mcp.plan.serving.workload import lengths
from aisp_mcp.records import Record

FAMILIES = {
    "fp4": ("nvfp4", "mxfp4", "nvfp4-w16", "mxfp4-w16"),  # the last two where a GPU multiplies no FP4
    "int4": ("int4-awq",),
    "int8": ("int8-w8a8",),
    "fp16": ("bf16",),
}


def weight_format(name: str) -> WeightFormat:
    """A format by name. Raises UsageError NO_FORMAT."""
    for row in knowledge.engine().formats:
        if row.name == name:
            return row
    known = ", ".join([*(row.name for row in knowledge.engine().formats), *FAMILIES])
    raise UsageError("NO_FORMAT", f"'{name[:40]}' is not a weight format that is listed here.", f"Listed: {known}.")


def runs_on(weights: WeightFormat, facts: GpuFacts) -> bool:
    """Return True if the GPU's table has a rate for the product, and the format is one of its vendor's."""
    return weights.compute in facts.peak and weights.vendor in (None, facts.vendor)


def preferred(arch: Architecture, facts: GpuFacts, name: str | None) -> list[WeightFormat]:
    """Formats to try in order: the named one; else as published, then bf16, then fp8.

    Raises UsageError NO_FORMAT, Unavailable NO_PEAK if the GPU runs none of them.
    """
    published = checkpoint_formats(arch)
    names = list(FAMILIES.get(name, (name,))) if name else [*(published or ["bf16"]), *([] if published else ["fp8"])]
    rows = [weight_format(item) for item in names]
    fits = [row for row in rows if runs_on(row, facts)]
    if not fits:
        raise Unavailable(
            "NO_PEAK",
            f"{facts.sku} has no hardware rate for {', '.join(row.name for row in rows)} in the table of GPU facts.",
            f"It has: {', '.join(facts.peak)}.",
        )
    return fits


def checkpoint_formats(arch: Architecture) -> list[str]:
    """Formats in which the checkpoint can be served, best first: the narrow ones also with products in 16 bits."""
    if arch.weights is not None:
        return [arch.weights, *([f"{arch.weights}-w16"] if arch.weights in ("mxfp4", "nvfp4", "fp8") else [])]
    return knowledge.engine().published.get(arch.listed or arch.name, [])


class Format(Record):
    """One weight format on this GPU. speedup: predicted time per output token against bf16, same batch."""

    name: str
    weight_bytes: int
    gpus: int = Field(description="Least power of two of them that holds weights and one sequence.")
    concurrency: int
    speedup_batch_1: float
    speedup_batch_64: float
    risk: str
    source: str


class Formats(Record):
    """Formats that the hardware multiplies natively, and the others with the reason."""

    headline: str
    formats: list[Format]
    excluded: list[Excluded]


def formats(arch: Architecture, facts: GpuFacts, tokens: int) -> Planned[Formats]:
    """Every format on this GPU, bf16 first."""
    engine = knowledge.engine()
    rows, out = [], []
    for weights in engine.formats:
        if not runs_on(weights, facts):
            have = ", ".join(facts.peak)
            out.append(
                Excluded(name=weights.name, because=f"needs a rate for {weights.compute}; {facts.sku} has {have}")
            )
            continue
        rows.append(_format(arch, facts, weights, tokens))
    return Planned[Formats](
        answer=Formats(headline=_fastest(arch, facts, rows), formats=rows, excluded=out),
        assumptions=[*arch.assumed, f"Sequences of {tokens} tokens, bf16 cache; embedding and head stay in 16 bit."],
        band={},
        not_modelled=lookup.first(
            "Accuracy on your task: risk is what the source reports for its models.",
            "Cost of scaling and dequantising inside kernels.",
        ),
        definitions={"speedup": "predicted time per output token of bf16 / of the format, on one GPU count"},
        check_here="aisp hw tc --dtypes bf16 fp8 int8",
        sources=[
            *lookup.sources(facts, arch),
            *knowledge.serving_shares().sources,
            *(Source(what=cite(row), as_of=row.checked) for row in engine.formats[1:]),
        ],
    )


def _fastest(arch: Architecture, facts: GpuFacts, rows: list[Format]) -> str:
    """The fastest format in which the checkpoint can be served, then a faster one that needs another checkpoint."""
    own = checkpoint_formats(arch)
    ready = [row for row in rows if row.name in own] or [row for row in rows if not weight_format(row.name).checkpoint]
    best = max(ready, key=lambda row: row.speedup_batch_64)
    other = max(rows, key=lambda row: row.speedup_batch_64)
    gain = f"{best.speedup_batch_64:.2g} times as fast as bf16 at batch 64"
    size = f"{best.weight_bytes / serving.GIB:.1f} GiB of weights on {best.gpus} GPUs"
    more = (
        f" A checkpoint in {other.name} would be {other.speedup_batch_64:.2g} times as fast."
        if other.speedup_batch_64 > 1.05 * best.speedup_batch_64
        else ""
    )
    return f"{arch.name} on {facts.sku}: {best.name}, {size}, {gain}; {best.risk}.{more}"


def _format(arch: Architecture, facts: GpuFacts, weights: WeightFormat, tokens: int) -> Format:
    engine = knowledge.engine()

    def at(tensor: int) -> serving.Setting:
        return serving.Setting(tensor=tensor, weights=weights, kv_dtype="bf16", prompt=tokens // 2, output=tokens // 2)

    gpus = next((n for n in (1, 2, 4, 8, 16, 32, 64) if serving.fit(arch, at(n), facts, engine).concurrency), 64)
    requests, shares = lengths(max(1, tokens // 2), max(1, tokens // 2)), knowledge.serving_shares()

    def seconds(kind: WeightFormat, batch: int) -> float:
        served = Served(arch=arch, weights=kind, kv_dtype="bf16", facts=facts, prefix_hit=1.0)
        return rate.step(served, Layout(tensor=gpus), requests, batch, shares, engine).total

    speedups = [round(seconds(engine.formats[0], batch) / seconds(weights, batch), 3) for batch in (1, 64)]
    return Format(
        name=weights.name,
        weight_bytes=serving.weight_bytes(arch, weights),
        gpus=gpus,
        concurrency=serving.fit(arch, at(gpus), facts, engine).concurrency,
        speedup_batch_1=speedups[0],
        speedup_batch_64=speedups[1],
        risk=weights.risk,
        source=cite(weights),
    )
