"""Facts that are disclosed with a comparison: settings of the libraries, and the oracle that judged."""

from __future__ import annotations

from typing import Any

from aisp_mcp.bench import Benchmark


def facts(device: str, goal: str) -> dict[str, Any]:
    """Settings that change speed and that no software can judge; both sides start from these."""
    import torch

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "allocator": _allocator(device, goal),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device == "cuda":
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        found["device"] = torch.cuda.get_device_name()
        if goal == "energy":
            found["uuid"] = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    return found


def oracle(spec: Benchmark) -> str:
    """Name what outputs are compared with."""
    if spec.tolerance.stochastic:
        return "distribution"
    return "float64" if type(spec).reference is Benchmark.reference else "second method"


def _allocator(device: str, goal: str) -> str:
    if device != "cpu":
        return "torch"
    keeps = "returns" if goal == "memory" else "keeps"
    return f"glibc {keeps} freed memory (MALLOC_TRIM_THRESHOLD_)"
