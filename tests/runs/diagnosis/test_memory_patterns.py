"""Access patterns worked out by hand, and counters of a recorded report."""

from __future__ import annotations

import pytest

from aisp_mcp.profile.records import NcuKernel
from aisp_mcp.runs.diagnosis import memory_patterns

LIMITS = {"bytes_per_sector": 16, "conflict_rate": 20, "divergence": 24}


@pytest.mark.parametrize(
    ("size", "stride", "offset", "sectors", "efficiency"),
    [
        (4, 1, 0, 4, 1.0),  # 128 bytes in a row
        (4, 1, 1, 5, 0.8),  # the same, 4 bytes on: one sector more
        (4, 2, 0, 8, 0.5),
        (4, 8, 0, 32, 0.125),  # a sector each
        (4, 1024, 0, 32, 0.125),
        (4, 0, 0, 1, 0.125),  # all read one word
        (16, 1, 0, 16, 1.0),
        (2, 1, 0, 2, 1.0),
        (1, 1, 0, 1, 1.0),
    ],
)
def test_sectors_of_a_warp(size: int, stride: int, offset: int, sectors: int, efficiency: float) -> None:
    pattern = memory_patterns.of_global(size, stride, offset)
    assert (pattern.sectors, pattern.efficiency) == (sectors, pytest.approx(efficiency))


@pytest.mark.parametrize(
    ("size", "stride", "ways"),
    [(4, 1, 1), (4, 2, 2), (4, 4, 4), (4, 32, 32), (4, 33, 1), (4, 0, 1), (4, 3, 1), (8, 1, 1), (8, 16, 16), (16, 1, 1),
     (2, 1, 1), (1, 1, 1)],
)  # fmt: skip
def test_bank_conflicts_of_a_warp(size: int, stride: int, ways: int) -> None:
    assert memory_patterns.of_shared(size, stride).conflict_ways == ways


def kernel(**metrics: float) -> NcuKernel:
    names = {
        "used": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
        "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "waves": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "threads": "smsp__thread_inst_executed_per_inst_executed.ratio",
    }
    return NcuKernel(id=1, name="k", duration_ns=10.0, metrics={names[key]: value for key, value in metrics.items()})


def test_counters_become_shares_and_problems() -> None:
    [bad] = memory_patterns.of_kernels([kernel(used=4, conflicts=30, waves=40, threads=8)], LIMITS)
    assert (bad.load_efficiency, bad.conflict_rate, bad.threads) == (0.125, 0.75, 8)
    assert [text.partition(" ")[0] for text in bad.problems] == ["loads", "bank", "divergence:"]
    [good] = memory_patterns.of_kernels([kernel(used=32, conflicts=0, waves=40, threads=32)], LIMITS)
    assert good.problems == good.lacking == []


def test_missing_counters_are_named_and_never_zero() -> None:
    [pattern] = memory_patterns.of_kernels([kernel()], LIMITS)
    assert (pattern.load_efficiency, pattern.conflict_rate, pattern.threads) == (None, None, None)
    assert pattern.lacking == ["coalescing", "bank conflicts", "divergence"]
