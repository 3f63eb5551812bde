"""Coalescing, bank conflicts and divergence: from ncu counters, or from an access pattern by the hardware's rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.profile.records import NcuKernel
from aisp_mcp.records import Record

WARP, SECTOR, BANKS, BANK_BYTES = 32, 32, 32, 4
DEFINITIONS = (
    "efficiency: useful bytes over bytes of the 32-byte sectors touched. conflict_ways: wavefronts one shared-memory "
    "request needs, 1 is free of conflicts (32 banks of 4 bytes; the same word is broadcast). conflict_rate: bank "
    "conflicts over shared-memory wavefronts. threads: active threads per executed instruction, of 32."
)


class Pattern(Record):
    """One warp's access: thread i reads element i * stride + offset of the given size."""

    space: Literal["global", "shared"]
    element_bytes: int
    stride: int
    sectors: int | None = None
    ideal_sectors: int | None = None
    efficiency: float | None = None
    conflict_ways: int | None = None
    sentence: str


class Kernel(Record):
    """One launch. A figure whose counters are missing from the report is None and named in lacking."""

    id: int
    name: str
    load_efficiency: float | None = None
    store_efficiency: float | None = None
    load_sectors_per_request: float | None = None
    conflict_rate: float | None = None
    threads: float | None = None
    problems: list[str] = Field(default_factory=list)
    lacking: list[str] = Field(default_factory=list)


def of_global(element_bytes: int, stride: int, offset: int = 0) -> Pattern:
    """Sectors that a warp touches. stride and offset count elements; stride 0 is one address for all."""
    touched = set()
    for thread in range(WARP):
        first = (thread * stride + offset) * element_bytes
        touched |= set(range(first // SECTOR, (first + element_bytes - 1) // SECTOR + 1))
    useful = len({thread * stride for thread in range(WARP)}) * element_bytes
    ideal = -(-useful // SECTOR)
    efficiency = useful / (len(touched) * SECTOR)
    sentence = (
        f"{len(touched)} sectors for {useful} bytes, {ideal} at best: {100 * efficiency:.3g} % of the traffic is useful"
    )
    return Pattern(
        space="global",
        element_bytes=element_bytes,
        stride=stride,
        sectors=len(touched),
        ideal_sectors=ideal,
        efficiency=efficiency,
        sentence=sentence,
    )


def of_shared(element_bytes: int, stride: int, offset: int = 0) -> Pattern:
    """Wavefronts of one request. 8-byte elements are served in halves of a warp, 16-byte ones in quarters."""
    group = WARP * BANK_BYTES // max(element_bytes, BANK_BYTES)
    ways = 0
    for begin in range(0, WARP, group):
        words: dict[int, set[int]] = defaultdict(set)
        for thread in range(begin, begin + group):
            first = (thread * stride + offset) * element_bytes // BANK_BYTES
            for word in range(first, first + max(1, element_bytes // BANK_BYTES)):
                words[word % BANKS].add(word)
        ways = max(ways, max(map(len, words.values())))
    sentence = "free of bank conflicts" if ways == 1 else f"{ways}-way bank conflict: pad each row by one element"
    return Pattern(space="shared", element_bytes=element_bytes, stride=stride, conflict_ways=ways, sentence=sentence)


def of_kernels(kernels: Sequence[NcuKernel], limits: dict[str, float]) -> list[Kernel]:
    """Launches by time. limits: bytes_per_sector, conflict_rate (percent) and divergence of the shipped thresholds."""
    ordered = sorted(kernels, key=lambda k: -(k.duration_ns or 0))
    return [_kernel(kernel, limits) for kernel in ordered]


def _kernel(kernel: NcuKernel, limits: dict[str, float]) -> Kernel:
    loads, stores = _efficiency(kernel, "ld"), _efficiency(kernel, "st")
    rate, threads = conflict_rate(kernel), kernel.metrics.get("smsp__thread_inst_executed_per_inst_executed.ratio")
    least = limits["bytes_per_sector"] / SECTOR
    problems = [
        f"{word} are not coalesced: {100 * value:.3g} % of the traffic is useful"
        for word, value in (("loads", loads), ("stores", stores))
        if value is not None and value < least
    ]
    if rate is not None and 100 * rate >= limits["conflict_rate"]:
        problems.append(f"bank conflicts in {100 * rate:.3g} % of shared-memory wavefronts")
    if threads is not None and threads < limits["divergence"]:
        problems.append(f"divergence: {threads:.3g} of 32 threads are active per instruction")
    figures = {"coalescing": (loads, stores), "bank conflicts": (rate,), "divergence": (threads,)}
    return Kernel(
        id=kernel.id,
        name=kernel.name[:96],
        load_efficiency=loads,
        store_efficiency=stores,
        load_sectors_per_request=_sectors(kernel),
        conflict_rate=rate,
        threads=threads,
        problems=problems,
        lacking=[name for name, values in figures.items() if all(value is None for value in values)],
    )


def _efficiency(kernel: NcuKernel, op: str) -> float | None:
    """Useful bytes per sector byte; None for a launch without such accesses."""
    used = kernel.metrics.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio")
    return used / SECTOR if used else None


def _sectors(kernel: NcuKernel) -> float | None:
    sectors = kernel.metrics.get("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    requests = kernel.metrics.get("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    return sectors / requests if sectors and requests else None


def conflict_rate(kernel: NcuKernel) -> float | None:
    """Bank conflicts over shared-memory wavefronts, loads and stores; None without both counters."""
    conflicts = _total(kernel, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum")
    waves = kernel.metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    if waves is None:
        waves = _total(kernel, "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum")
    if conflicts is None or waves is None:
        return None
    return conflicts / waves if waves else 0.0


def _total(kernel: NcuKernel, name: str) -> float | None:
    values = [kernel.metrics[key] for op in ("ld", "st") if (key := name.format(op)) in kernel.metrics]
    return sum(values) if values else None
