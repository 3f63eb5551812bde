"""Data-sheet facts of a GPU. Dense rates come first; sparse means 2:4 structured sparsity and is named as such."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record


class Peak(Record):
    """One dtype's peak in TFLOP/s (TOP/s for integers)."""

    dense: float
    sparse: float | None = None
    acc: str = Field(description="Accumulator type the figure holds for.")
    note: str | None = None


class Formula(Record):
    """bf16 dense = units x fma_per_clock x 2 x clock. clock is published, or derived from the peak itself."""

    units: int = Field(description="Tensor or matrix cores.")
    fma_per_clock: int = Field(description="Multiply-adds of one unit per clock, bf16 with the stated accumulator.")
    clock_mhz: int
    clock: Literal["published", "derived"]


class FactLink(Record):
    """Link between GPUs: bytes/s per direction, all links together."""

    kind: str
    per_direction_bytes_s: float
    links: int | None = None


class FactPcie(Record):
    """Host link."""

    generation: int
    width: int


class FactMemory(Record):
    """sold_gb is the number on the box; reported_bytes is what CUDA or nvidia-smi shows, where known."""

    kind: str
    sold_gb: float
    reported_bytes: int | None = None
    bandwidth_bytes_s: float
    note: str | None = None


class GpuFacts(Record):
    """One SKU."""

    sku: str
    vendor: Literal["nvidia", "amd"]
    form: str
    names: list[str] = Field(description="Exact device names and common short names, lower case.")
    compute_capability: str | None = Field(default=None, description="None for AMD.")
    architecture: str
    sm_count: int | None = Field(default=None, description="SMs, or compute units for AMD.")
    peak: dict[str, Peak]
    formula: Formula | None = None
    memory: FactMemory
    l2_bytes: int | None = None
    link: FactLink | None = None
    pcie: FactPcie | None = None
    tdp_w: int
    source: str
    checked: str = Field(description="Day on which the source was read, ISO 8601.")
    unverified: list[str] = Field(default=[], description="Fields for which no source was found.")
    confidence: Literal["high", "medium", "low"]
    note: str | None = None


class Capability(Record):
    """Limits and features of one CUDA compute capability (CUDA C Programming Guide, technical specifications)."""

    compute_capability: str
    architecture: str
    precisions: list[str] = Field(description="Matrix types of the tensor cores.")
    features: list[str]
    warps_per_sm: int
    blocks_per_sm: int
    threads_per_sm: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int = Field(description="Largest after opt-in.")
    max_cluster: int = Field(description="Portable cluster size in blocks; 1 without clusters.")
