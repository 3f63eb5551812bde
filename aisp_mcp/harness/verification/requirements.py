"""Reasons why a benchmark cannot be measured: what this machine lacks, in words, or its own specification.

Runs in the verifier, where torch may be imported.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from aisp_mcp.bench import Benchmark, Needs
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.harness.verification import quality
from aisp_mcp.harness.verification.distribution import LEAST
from aisp_mcp.harness.verification.input_bank import InputBank
from aisp_mcp.harness.workers.module_loader import flatten


def missing_needs(needs: Needs) -> list[str]:
    """Each lack as a phrase; empty when the benchmark can run."""
    lacks = [f"package {name}" for name in needs.packages if not _installed(name)]
    if needs.gpus or needs.sm or needs.memory_gb:
        lacks += _missing_device(needs)
    return lacks


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _missing_device(needs: Needs) -> list[str]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < max(1, needs.gpus):
        return [f"{max(1, needs.gpus)} CUDA device(s), found {count}"]
    lacks = []
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor < needs.sm:
        lacks.append(f"compute capability {needs.sm / 10:.1f}, found {major}.{minor}")
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < needs.memory_gb:
        lacks.append(f"{needs.memory_gb:g} GiB of free device memory, found {free:.1f}")
    return lacks


def reject_degenerate(bank: InputBank, seed: int, output: Any) -> None:
    """A problem whose answer does not depend on its inputs cannot tell work from pretence. seed: of other inputs than
    those of the output. Raises BenchmarkError DEGENERATE.
    """
    other = bank.reference.baseline(bank.inputs(seed, "plain"))
    pairs = zip(flatten(output), flatten(other), strict=True)
    if all(a.shape == b.shape and bool((a == b).all()) for (_, a), (_, b) in pairs):
        raise BenchmarkError(
            "DEGENERATE",
            "The baseline gives the same output for different inputs.",
            "Make inputs that the output depends on.",
        )


def reject_untestable(bank: InputBank, seed: int, output: Any) -> None:
    """A random output needs an expectation to be compared with, and enough elements; a contract of quality must tell
    a step less. Raises BenchmarkError.
    """
    spec = bank.reference.spec
    if checked := quality.contract(spec):
        checked.reject_blind(bank, seed)
    if not spec.tolerance.stochastic:
        return
    if type(spec).reference is Benchmark.reference:
        hint = "Define reference(): the expected output for these inputs, in float64."
        raise BenchmarkError("NO_EXPECTATION", "The contract is stochastic, and there is no reference().", hint)
    least = min(tensor.numel() for _, tensor in flatten(output))
    if least < LEAST:
        hint = f"Make outputs of {LEAST} elements or more."
        raise BenchmarkError("TOO_FEW_DRAWS", f"{least} random elements say nothing about a distribution.", hint)
