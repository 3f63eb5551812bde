"""Time of a dense matrix product from the datasheet and calibrated shares."""

from __future__ import annotations

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan.records import GemmShares

TERA = 1e12
WIDTH = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5}
OUTPUT = 2.0  # bytes per element written: bf16


def seconds(
    facts: GpuFacts, shares: GemmShares, m: int, n: int, k: int, weight: str = "bf16", compute: str | None = None
) -> float:
    """Seconds of (m, k) x (k, n). weight: dtype of the (k, n) operand; compute: of the product, default the same.

    Raises KeyError for a dtype that the GPU's table lacks.
    """
    kind = compute or weight
    moved = m * k * WIDTH[kind] + n * k * WIDTH[weight] + m * n * (4.0 if kind in ("fp32", "tf32") else OUTPUT)
    return shares.overhead_s + blend(facts, shares, 2.0 * m * n * k, moved, kind)


def blend(facts: GpuFacts, shares: GemmShares, flops: float, moved: float, kind: str) -> float:
    """Seconds of work bound by compute or by memory, with a smooth transition between the two."""
    work = flops / (facts.peak[kind].dense * TERA * shares.peak)
    memory = moved / (facts.memory.bandwidth_bytes_s * shares.bandwidth)
    p = shares.sharpness
    return float((work**p + memory**p) ** (1.0 / p))
