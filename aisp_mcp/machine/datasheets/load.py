"""Data sheets of GPUs. An unknown name has no entry; nothing is inferred from a similar one.

Dense rates come first; sparse means 2:4 structured sparsity and is named as such. Each row is cited with its source.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, Protocol

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


def document(name: str, package: str = "aisp_mcp.machine.datasheets") -> Any:
    """A YAML file of a package, parsed, by libyaml if PyYAML includes it: that takes a tenth of the time."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load((resources.files(package) / name).read_text("utf-8"), loader)


def facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the history of its corrections, which belongs to the page of sources."""
    return {key: value for key, value in row.items() if key != "corrected"}


@cache
def gpus() -> tuple[GpuFacts, ...]:
    """Every row of gpus.yaml. Raises ValidationError if the file is malformed."""
    return tuple(GpuFacts.model_validate(facts(row)) for row in document("gpus.yaml"))


@cache
def capabilities() -> dict[str, Capability]:
    """Compute capability ("9.0") to its limits and features."""
    by_version = {}
    for row in document("capabilities.yaml"):
        limits = row["limits"]
        by_version[row["compute_capability"]] = Capability(
            compute_capability=row["compute_capability"],
            architecture=row["architecture"],
            precisions=row["precisions"],
            features=row["features"],
            warps_per_sm=limits["warps"],
            blocks_per_sm=limits["blocks"],
            threads_per_sm=limits["threads"],
            registers_per_sm=limits["registers"],
            shared_bytes_per_sm=limits["shared_sm"],
            shared_bytes_per_block=limits["shared_block"],
            max_cluster=limits["cluster"],
        )
    return by_version


def normal(name: str) -> str:
    """Lower case with single blanks and without trademark signs, for comparing names."""
    plain = name.replace("(TM)", " ").replace("(R)", " ").replace("_", " ")
    return " ".join(plain.lower().split())


def gpu(name: str | None) -> GpuFacts | None:
    """The facts of a device or short name, only on an exact match; None otherwise.

    "NVIDIA H100 80GB HBM3" is the SXM card. "H100" alone names several products and has no row: see named().
    """
    plain_name = normal(name or "")
    for row in gpus():
        if plain_name in row.names or plain_name == normal(row.sku):
            return row
    return None


def named(name: str) -> GpuFacts | None:
    """The facts for a name that a person typed: as gpu(), but vendors and dashes are optional.

    "4090" and "a100-40gb" are enough. A family such as "H100" means its SXM card, or else its only one; of several, the
    one with the most memory. Any other word must be in the name of the card: "H100 MIG 1g" has no row.
    """
    words = _words(name)
    family = _without_size(words)
    size = next(iter(words - family), None)
    cards = []
    for row in gpus():
        spelled = [_words(alias) for alias in (*row.names, row.sku)]
        if size is None or round(row.memory.sold_gb) == int(size[:-2]):
            cards += [row] * any(family and family <= alias - {size} for alias in spelled)
    whole = [row for row in cards if any(_without_size(_words(alias)) == family for alias in (*row.names, row.sku))]
    boards = whole or [row for row in cards if row.form.upper().startswith("SXM")] or (cards if len(cards) == 1 else [])
    return gpu(name) or gpu(f"nvidia {name}") or max(boards, key=lambda row: row.memory.sold_gb, default=None)


def _words(name: str) -> frozenset[str]:
    """Words of a name without the vendor's; SXM4 and SXM5 are SXM, and an MI350 is the MI350X."""
    plain = re.sub(r"[-_/]", " ", normal(name))
    plain = re.sub(r"\brtx(\d{4})\b", r"rtx \1", re.sub(r"(\d) gb\b", r"\1gb", plain))
    drop = {"nvidia", "amd", "instinct", "tesla", "geforce", "rtx", "gpu", "hbm3", "hbm2e", "generation", "hgx"}
    words = (word for word in plain.split() if word not in drop)
    return frozenset(re.sub(r"^(mi3\d\d)$", r"\1x", re.sub(r"^sxm\d$", "sxm", word)) for word in words)


def _without_size(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if not re.fullmatch(r"\d+gb", word))


def similar(name: str, limit: int = 5) -> list[str]:
    """SKUs whose names resemble the given one: for a hint, never for a figure."""
    plain_name = normal(name)
    by_name = {alias: row.sku for row in gpus() for alias in (*row.names, normal(row.sku))}
    starts = [
        sku
        for alias, sku in by_name.items()
        if alias.startswith(plain_name) or alias.startswith(f"nvidia {plain_name}")
    ]
    close = [by_name[alias] for alias in difflib.get_close_matches(plain_name, by_name, n=limit, cutoff=0.5)]
    return list(dict.fromkeys([*starts, *close]))[:limit]


UNVERIFIED = "unverified"  # in place of a source: none was found for any field of the row


class Sourced(Protocol):
    """A row of facts. unverified: its fields for which no source was found."""

    @property
    def source(self) -> str: ...
    @property
    def unverified(self) -> list[str]: ...


def cite(row: Sourced) -> str:
    """The row's source, and the fields that it does not cover."""
    return f"{row.source}; unverified: {', '.join(row.unverified)}" if row.unverified else row.source
