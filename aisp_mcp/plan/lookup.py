"""Names to facts for the planners: models, GPUs, calibrations. A name without a row is an error with a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts, cite
from aisp_mcp.plan import hub_config, parameters
from aisp_mcp.plan.architecture import Architecture
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Band, Calibration, Source
from aisp_mcp.system.gpu import nvml

_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")  # 30b in qwen3-30b-a3b
_OFF = 1.3
NO_BF16 = "fp16: this GPU has no bf16"


def architecture(name: str | None, described: Mapping[str, Any] | None = None) -> Architecture:
    """A listed model, or the described one.

    name: also an alias, or a path to a config.json.

    Raises UsageError NO_MODEL, UNKNOWN_MODEL, BAD_ARCHITECTURE, BAD_CONFIG.
    """
    if described is not None:
        return _described(described)
    if not name:
        raise UsageError("NO_MODEL", "Neither model nor architecture is given.", "Such as model llama-3.1-8b.")
    if name.endswith(".json") or name.startswith((".", "/", "~")):
        return _sized(_described(hub_config.read(Path(name).expanduser())))
    known = tables.model(name)
    if known is None:
        near = ", ".join(tables.similar_models(name))
        raise UsageError(
            "UNKNOWN_MODEL",
            f"'{name[:80]}' is not a known model: its layers and heads are unknown.",
            f"Listed: {near}. Any other: give a path to its config.json, or describe it with architecture.",
        )
    return known


def _sized(arch: Architecture) -> Architecture:
    """The architecture, with a note if its parameters are not as many as its folder's name says."""
    stated = _SIZE.search(arch.name.lower())
    total = parameters.total(arch) / 1e9
    if stated is None or 1 / _OFF < total / float(stated[1]) < _OFF:
        return arch
    said = (
        f"Its name says {stated[1]}B parameters, its configuration was read as {total:.3g}B: parts of it are not known."
    )
    return arch.model_copy(update={"assumed": [*arch.assumed, said]})


def require_context(arch: Architecture, tokens: int, stretch: int = 1) -> None:
    """Raise UsageError CONTEXT_LIMIT if a sequence is longer than `stretch` times the model's published limit."""
    if arch.context is not None and tokens > arch.context * stretch:
        raise UsageError(
            "CONTEXT_LIMIT",
            f"{arch.name} takes sequences of at most {arch.context:,} tokens; {tokens:,} were requested.",
            "Shorten the sequence, or describe the model with another `context` in architecture.",
        )


def _described(described: Mapping[str, Any]) -> Architecture:
    try:
        return Architecture.model_validate({"name": "described", "source": "the caller", **described})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            "BAD_ARCHITECTURE",
            f"architecture.{where}: {first['msg']}",
            'For example {"layers": 32, "hidden": 4096, "vocab": 128256, "attention": {"heads": 32, "kv_heads": 8, '
            '"head_dim": 128, "layers": 32}, "mlp": {"width": 14336}}',
        ) from None


def gpu(name: str | None) -> GpuFacts:
    """Facts of the named GPU, or of the first one here. Raises Unavailable NO_GPU, UsageError UNKNOWN_GPU."""
    if name is None:
        name = next((item.name for item in nvml.read(brief=True).gpus if item.name), None)
        if name is None:
            raise Unavailable(
                "NO_GPU",
                "No GPU was named, and NVML shows none here to plan for.",
                "Name one: gpu='H200-SXM'.",
                (("aisp_system_capabilities", {}),),
            )
    gpu_facts = load.named(name)
    if gpu_facts is None:
        near = load.similar(name)
        raise UsageError(
            "UNKNOWN_GPU",
            f"'{name[:80]}' is not in the table of GPU facts: its peak and memory are unknown here.",
            f"Did you mean: {', '.join(near)}?" if near else f"Listed: {', '.join(row.sku for row in load.gpus())}.",
        )
    if "bf16" not in gpu_facts.peak and "fp16" in gpu_facts.peak:
        half = gpu_facts.peak["fp16"].model_copy(update={"note": NO_BF16})
        return gpu_facts.model_copy(update={"peak": {**gpu_facts.peak, "bf16": half}})
    return gpu_facts


def without_bf16(facts: GpuFacts) -> bool:
    """Return True for GPUs before Ampere, whose 16-bit products are fp16."""
    return "bf16" in facts.peak and facts.peak["bf16"].note == NO_BF16


def link_domain(facts: GpuFacts) -> int:
    """GPUs that reach each other without the network: 72 in a rack of Grace Blackwell, else the usual 8 of a node."""
    return 72 if any("nvl72" in name for name in facts.names) else 8


def host_gpus(facts: GpuFacts) -> int:
    """GPUs of one operating system: 4 in a tray of such a rack, else the usual 8."""
    return 4 if link_domain(facts) > 8 else 8


def calibration(facts: GpuFacts) -> Calibration | None:
    """Measured shares for the GPU's architecture; None: times are not predicted."""
    return tables.calibration(facts)


def band(row: Calibration | None, kind: str, value: float, unit: str) -> Band | None:
    """The p10-p90 range around a predicted value; None without a calibration."""
    if row is None:
        return None
    ratio = row.bands[kind]
    return Band(p10=value * ratio.p10, p90=value * ratio.p90, unit=unit, basis=ratio.basis)


def sources(facts: GpuFacts | None, arch: Architecture | None, row: Calibration | None = None) -> list[Source]:
    """Origins of the facts, deduplicated; none for an architecture described by the caller."""
    all_sources = []
    if facts is not None:
        all_sources.append(Source(what=f"GPU facts {facts.sku}: {cite(facts)}", as_of=facts.checked))
    if arch is not None and arch.checked is not None:
        all_sources.append(Source(what=f"architecture {arch.name}: {cite(arch)}", as_of=arch.checked))
    return [*all_sources, *(row.sources if row else [])]


def bands(all_bands: Mapping[str, Band | None]) -> dict[str, Band]:
    return {name: item for name, item in all_bands.items() if item is not None}


def first(*texts: str | None) -> list[str]:
    """The texts that are not None or empty."""
    return [text for text in texts if text]


def require_dtype(facts: GpuFacts, dtypes: Sequence[str]) -> None:
    """Raise Unavailable NO_PEAK if the GPU has no rate for one of the dtypes."""
    lacking = [dtype for dtype in dtypes if dtype not in facts.peak]
    if lacking:
        raise Unavailable(
            "NO_PEAK",
            f"{facts.sku} has no hardware rate for {', '.join(lacking)} in the table of GPU facts.",
            f"It has: {', '.join(facts.peak)}.",
        )
