"""Reasons why a benchmark cannot be measured: something this machine lacks, or a fault in the specification.

Runs in the verifier, where torch may be imported.
"""

from __future__ import annotations

import ctypes.util
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from aisp_mcp.bench import Benchmark, Needs
from aisp_mcp.bench.sizes import settable
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.native import build
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.verifier.checks import quality
from aisp_mcp.judge.verifier.checks.distribution import LEAST
from aisp_mcp.judge.verifier.inputs.bank import InputBank
from aisp_mcp.system import cpu, topology

TILES = {"amx": "amx_tile"}  # CPU features by their common names
MIN_SM = {"fp8": 89, "fp4": 100}  # lowest compute capability whose tensor cores multiply these types
ROUNDINGS = 16  # outputs that differ by no more than this do not depend on their inputs
LINKS = {"p2p": "memory access between two devices", "nvlink": "NVLink between two devices"}
TOOLS = {"nvcc": "the compiler nvcc (CUDA_HOME, PATH, /usr/local/cuda)", "cufile": "the library cuFile"}


def missing_needs(needs: Needs, threads: int, cores: int) -> list[str]:
    """Each unmet need as a phrase; empty if the benchmark can run. threads: of each worker, as declared. cores: that
    the comparison may use. Raises BenchmarkError BAD_NEED for an unknown name.
    """
    known = {*MIN_SM, *LINKS, *TOOLS}
    if unknown := {*needs.gpu, *needs.tools} - known:
        raise BenchmarkError("BAD_NEED", f"Unknown need {min(unknown)!r}.", f"Known are {', '.join(sorted(known))}.")
    lacks = [f"package {name}" for name in needs.packages if not _installed(name)]
    if cores < (needed := max(needs.cores, threads)):
        lacks.append(f"{needed} cores, found {cores}")
    lacks += _missing_on_host(needs)
    sm = max([needs.sm, *(MIN_SM[name] for name in needs.gpu if name in MIN_SM)])
    links = [name for name in needs.gpu if name in LINKS]
    gpus = max(needs.gpus, 2 if links else 0)
    if gpus or sm or needs.memory_gb:
        lacks += _missing_device(gpus, sm, needs.memory_gb)
    return [*lacks, *_missing_links(links)]


def _missing_on_host(needs: Needs) -> Iterator[str]:
    if needs.numa and (available := max(len(cpu.numa()), 1)) < needs.numa:
        yield f"{needs.numa} NUMA nodes, found {available}"
    features = cpu.read().isa if needs.cpu else []
    yield from (f"processor feature {name}" for name in needs.cpu if TILES.get(name, name) not in features)
    yield from (TOOLS[name] for name in needs.tools if not _has_tool(name))


def _has_tool(name: str) -> bool:
    if name == "nvcc":
        return build.compiler(".cu") is not None
    return ctypes.util.find_library("cufile") is not None


def _missing_links(links: list[str]) -> Iterator[str]:
    pair = next(iter(topology.read().pairs), None) if links else None
    there = {"p2p": pair is not None and pair.read == "ok", "nvlink": pair is not None and bool(pair.nvlink)}
    yield from (LINKS[name] for name in links if not there[name])


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _missing_device(gpus: int, sm: int, memory_gb: float) -> list[str]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < max(1, gpus):
        return [f"{max(1, gpus)} CUDA device(s), found {count}"]
    lacks = []
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor < sm:
        lacks.append(f"compute capability {sm / 10:.1f}, found {major}.{minor}")
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < memory_gb:
        lacks.append(f"{memory_gb:g} GiB of free device memory, found {free:.1f}")
    return lacks


def reject_degenerate(bank: InputBank, seed: int, output: Any) -> None:
    """Refuse a problem whose answer does not depend on its inputs, because its outputs cannot show that work was done.
    seed: of inputs other than those of the output. Raises BenchmarkError DEGENERATE.
    """
    other = bank.reference.baseline(bank.inputs(seed, "plain"))
    pairs = zip(flatten(output), flatten(other), strict=True)
    if all(_same(a, b) for (_, a), (_, b) in pairs):
        spec = bank.reference.spec
        zeros = [name for name, value in settable(spec).items() if value == 0 and not isinstance(value, bool)]
        if zeros:
            at = f"{', '.join(f'{name}=0' for name in zeros)} of {type(spec).__name__}"
            message = f"The baseline gives the same output for different inputs at the size {at}."
            raise BenchmarkError("DEGENERATE", message, f"Set {' and '.join(zeros)} above 0.")
        raise BenchmarkError(
            "DEGENERATE",
            "The baseline gives the same output for different inputs.",
            "Make inputs that the output depends on.",
        )


def _same(one: Any, other: Any) -> bool:
    """Return True if outputs for different inputs are equal, or differ only by rounding: then a fixed answer would also
    be correct.
    """
    import torch

    if one.shape != other.shape:
        return False
    if one.dtype not in (torch.float32, torch.float64) or not one.numel():
        return bool((one == other).all())
    allowed = ROUNDINGS * torch.finfo(one.dtype).eps * one.abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(((one == other) | ((one - other).abs() <= allowed)).all())


def reject_untestable(bank: InputBank, seed: int, output: Any) -> None:
    """Refuse a random output without an expectation to compare it with, or with too few elements, and a quality
    contract that would miss a skipped step. Raises BenchmarkError.
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
        raise BenchmarkError("TOO_FEW_DRAWS", f"{least} random elements are too few to test a distribution.", hint)
