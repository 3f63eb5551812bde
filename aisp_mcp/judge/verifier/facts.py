"""Facts that are disclosed with a comparison: settings of the libraries, and the reference that was used."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.verifier.checks import quality


def facts(device: str, spec: Benchmark) -> dict[str, Any]:
    """Settings that affect speed and that software cannot judge; baseline and candidate start with the same ones."""
    import torch

    versions: dict[str, Any] = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "allocator": _allocator(device, spec.goal),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device == "cuda":
        versions |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        versions["device"] = torch.cuda.get_device_name()
        if spec.goal == "energy":
            versions["uuid"] = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    if checked := quality.contract(spec):
        versions |= {"compared": "quality", "quality": asdict(checked.quality)}
    elif spec.tolerance.format:
        versions |= {"compared": spec.tolerance.format}
    return versions


def work(spec: Benchmark) -> dict[str, Any]:
    """Work of one call, and the name of its items."""
    declared = spec.work()
    return {"work": {"flops": declared.flops, "bytes": declared.bytes, "items": declared.items}, "unit": declared.unit}


def layout_rules(spec: Benchmark, ranks: int) -> dict[str, bool]:
    """Rules for the strides of outputs. Ranks copy theirs into the baseline's strides."""
    return {"layout_strict": spec.layout == "strict", "layout_any": spec.layout == "any" and ranks == 1}


def oracle(spec: Benchmark) -> str:
    """Name the reference that outputs are compared with."""
    if spec.tolerance.stochastic:
        return "distribution"
    if quality.contract(spec):
        return "quality"
    return "float64" if type(spec).reference is Benchmark.reference else "second method"


def _allocator(device: str, goal: str) -> str:
    if device != "cpu":
        return "torch"
    keeps = "returns" if goal == "memory" else "keeps"
    return f"glibc {keeps} freed memory (MALLOC_TRIM_THRESHOLD_)"
