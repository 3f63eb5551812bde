"""Weight formats: those that a GPU multiplies natively, and the order in which a plan tries them."""

from __future__ import annotations

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.records import WeightFormat
from aisp_mcp.plan.savings.techniques import capable

FAMILIES = {
    "fp4": ("nvfp4", "mxfp4"),
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
    """Return True if the GPU's table has a rate for the product, and engines serve the format on it."""
    new = facts.compute_capability is None or capable(facts.compute_capability, weights.needs)
    return weights.compute in facts.peak and weights.vendor in (None, facts.vendor) and new


def preferred(arch: Architecture, facts: GpuFacts, name: str | None) -> list[WeightFormat]:
    """Formats to try in order: the named one; else those published, or bf16, then fp8 made of it at start.

    One with products in 16 bits is tried where the GPU does not multiply the format itself.

    Raises UsageError NO_FORMAT, Unavailable NO_PEAK if the GPU runs none of them.
    """
    published = checkpoint_formats(arch)
    names = FAMILIES.get(name, (name,)) if name else (published or ("bf16", "fp8"))
    rows = [weight_format(item) for item in names]
    listed = {row.name: row for row in knowledge.engine().formats}
    rows += [listed[f"{item}-w16"] for item in names if f"{item}-w16" in listed and f"{item}-w16" not in names]
    native = {row.name for row in rows if runs_on(row, facts)}
    fits = [row for row in rows if row.name in native and row.name.removesuffix("-w16") not in native - {row.name}]
    if not fits:
        raise Unavailable(
            "NO_PEAK",
            f"{facts.sku} has no hardware rate for {', '.join(row.name for row in rows)} in the table of GPU facts, or "
            "engines serve it on newer GPUs only.",
            f"It has: {', '.join(facts.peak)}.",
        )
    return fits


def checkpoint_formats(arch: Architecture) -> list[str]:
    """Formats in which the checkpoint can be served, best first: the narrow ones also with products in 16 bits."""
    if arch.weights is not None:
        return [arch.weights, *([f"{arch.weights}-w16"] if arch.weights in ("mxfp4", "nvfp4", "fp8") else [])]
    return knowledge.engine().published.get(arch.listed or arch.name, [])
