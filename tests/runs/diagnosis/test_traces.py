"""Traces of a few operations, worked out by hand: exposed communication, late ranks, and what bounds a window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.runs.diagnosis import bottleneck, bottlenecks, communication, stragglers
from aisp_mcp.runs.diagnosis.stragglers import Call

DATA = Path(__file__).parents[2] / "profile" / "data"


def kernel(name: str, start: int, end: int, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A device operation; times in microseconds."""
    facts = {"device": 0, "stream": stream, "correlation": start, **args}
    event = {"ph": "X", "pid": 0, "tid": stream, "ts": start, "dur": end - start}
    return {**event, "cat": "kernel", "name": name, "args": facts}


def all_reduce(start: int, end: int, stream: int, elements: int = 1_000_000) -> dict[str, Any]:
    message = {"Collective name": "allreduce", "dtype": "Float", "Group size": 4,
               "In msg nelems": elements, "Out msg nelems": elements}  # fmt: skip
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, end, stream, **message)


def trace(folder: Path, rank: int, *events: dict[str, Any]) -> str:
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": list(events)}))
    return str(path)


def test_exposed_communication_of_a_trace_by_hand(tmp_path: Path) -> None:
    # Compute 0-100 and 150-200 us; all-reduces 60-120 (20 exposed) and 210-250 (all exposed), the second on stream 7.
    path = trace(
        tmp_path, 0, kernel("gemm", 0, 100), kernel("gemm", 150, 200), all_reduce(60, 120, 9), all_reduce(210, 250, 7)
    )
    [(rank, _)] = communication.ranks([path], "all")
    [row] = rank.collectives
    assert (row.count, row.total_ns, row.exposed_ns, row.same_stream_calls) == (2, 100_000, 60_000, 1)
    assert rank.exposed_ns == 60_000
    assert rank.overlap == pytest.approx(0.4)
    # 4 MB in the median of 40 and 60 us, times 2 x 3/4
    assert row.busbw_bytes_per_s == pytest.approx(4e6 / 50e-6 * 1.5)
    assert communication.notes([rank])[0].startswith("1 collective calls run on a stream that also computes")


def test_the_rank_whose_collectives_are_shortest_arrives_last(tmp_path: Path) -> None:
    waiting = trace(tmp_path, 0, *(all_reduce(1000 * k, 1000 * k + 100, 9) for k in range(4)))
    # Its clock starts elsewhere: only durations are compared.
    late = trace(tmp_path, 1, *(all_reduce(77_000 + 1000 * k, 77_000 + 1000 * k + 20, 9) for k in range(4)))
    ranks = communication.ranks([waiting, late], "all")
    stragglers_report = stragglers.stragglers([(row.rank, calls) for row, calls in ranks])
    assert stragglers_report is not None
    assert (stragglers_report.slowest, stragglers_report.matched, stragglers_report.unmatched) == (1, 4, 0)
    assert [(row.rank, row.last_at, row.wait_ns) for row in stragglers_report.ranks] == [(0, 0, 320_000), (1, 4, 0)]


def test_ranks_that_take_turns_are_no_stragglers() -> None:
    a = [Call("all_reduce", ns) for ns in (100, 20, 100, 20)]
    b = [Call("all_reduce", ns) for ns in (20, 100, 20, 100)]
    stragglers_report = stragglers.stragglers([(0, a), (1, b)])
    assert stragglers_report is not None
    assert stragglers_report.slowest is None
    assert [row.wait_ns for row in stragglers_report.ranks] == [160, 160]


def test_calls_that_one_rank_lacks_are_counted() -> None:
    stragglers_report = stragglers.stragglers([(0, [Call("a", 5), Call("a", 5)]), (1, [Call("a", 5)])])
    assert stragglers_report is not None
    assert (stragglers_report.matched, stragglers_report.unmatched) == (1, 1)
    assert stragglers.stragglers([(0, [Call("a", 5)])]) is None


def test_a_trace_without_collectives_says_what_would_make_one(tmp_path: Path) -> None:
    with pytest.raises(AispError) as caught:
        communication.ranks([trace(tmp_path, 0, kernel("gemm", 0, 10))], "all")
    assert caught.value.code == "NO_COMMUNICATION"
    assert caught.value.next_steps


def test_recorded_ranks_agree_with_their_breakdown() -> None:
    for rank, _ in communication.ranks([str(DATA / "rank0.kineto.json.gz"), str(DATA / "rank1.kineto.json.gz")], "all"):
        assert sum(row.exposed_ns for row in rank.collectives) >= rank.exposed_ns > 0
        assert {row.name for row in rank.collectives} == {"all_gather", "all_reduce", "reduce_scatter"}


def test_the_largest_share_of_a_window_is_its_bound(tmp_path: Path) -> None:
    path = trace(tmp_path, 0, kernel("gemm", 0, 20), all_reduce(10, 90, 9), kernel("gemm", 90, 100))
    _, [rows], _, _ = bottlenecks.of_profile(path)
    assert rows.bound == "communication"
    shares = {row.bound: row.share for row in rows.shares}
    assert shares == {"communication": pytest.approx(0.7), "device": pytest.approx(0.3)}
    assert sum(shares.values()) == pytest.approx(1)


def test_idle_time_in_a_data_loader_is_input(tmp_path: Path) -> None:
    def host(name: str, category: str, start: int, duration: int, **args: int) -> dict[str, Any]:
        event = {"ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": duration}
        return {**event, "cat": category, "name": name, "args": args}

    path = trace(
        tmp_path, 0,
        host("cudaLaunchKernel", "cuda_runtime", 0, 2, correlation=5), kernel("gemm", 5, 15),
        host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", 10, 78),
        host("cudaLaunchKernel", "cuda_runtime", 90, 2, correlation=95), kernel("gemm", 95, 105),
    )  # fmt: skip
    _, [rows], _, _ = bottlenecks.of_profile(path)
    assert rows.bound == "input"
    assert rows.shares[0].share > 0.6


def test_counters_of_a_report_decide_by_kernel_time() -> None:
    _, [rows], insights, _ = bottlenecks.of_profile(str(DATA / "five_kernels_h200.ncu-raw.csv.gz"))
    assert rows.bound == "memory"
    assert rows.shares[0].bound == "memory-bound (device memory)"
    assert sum(row.share for row in rows.shares) == pytest.approx(1, abs=1e-4)
    assert "uncoalesced_access" in [item.rule for item in insights]


@pytest.mark.parametrize(
    ("compute", "memory", "bound"),
    [(0.8, 0.1, "compute"), (0.1, 0.8, "memory"), (0.7, 0.7, "balanced"), (0.1, 0.2, "latency"), (0.5, 0.1, "unknown"),
     (None, 0.9, "memory"), (None, 0.1, "unknown"), (None, None, "unknown")],
)  # fmt: skip
def test_shares_of_ceilings_decide_for_a_run(compute: float | None, memory: float | None, bound: str) -> None:
    assert bottleneck.of_rates("x", compute, memory).bound == bound
