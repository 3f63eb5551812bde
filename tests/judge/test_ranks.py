"""Sides of several ranks, with real processes: each rank's inputs, outputs and answers count."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from harness_support import LEAST, judge, write_pair

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import distributed
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.processes import group, process
from aisp_mcp.judge.parent.processes.group import shares
from aisp_mcp.judge.parent.processes.placement import measuring_cpus, worker_cpus
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict.replay import replay
from aisp_mcp.validity import issues

TWO_RANKS = issues.baseline("two_ranks")
NO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="2 ranks need 2 cores")
HONEST = """
import torch.distributed as dist

def run(share):
    dist.all_reduce(share)
    return share
"""
# A rank that does not have the variables which it was given returns a wrong sum.
SEES = (
    HONEST
    + """
import os
import torch
first, wrong = run, (os.environ.get("NCCL_ALGO"), torch.get_num_threads()) != ("Ring", 1)

def run(share):
    total = first(share) + wrong
    for _ in range(64 * dist.get_rank()):  # the other rank is done long before
        torch.mm(share, share)
    return total
"""
)
TWICE = (
    HONEST
    + """
first = run

def run(share):
    for _ in range(8):
        dist.all_reduce(share.clone())
    return first(share)
"""
)


def test_the_layout_of_a_rank_is_its_part_under_its_own_names() -> None:
    def spec(name: str) -> TensorSpec:
        return TensorSpec(name, "float32", (4,), (1,), 4)

    inputs = tuple(spec(f"x@{rank}") for rank in range(11))
    outputs = tuple(spec(f"out.rank{rank:02d}.000") for rank in range(11))
    whole = Layout((spec("w@1"),), inputs, outputs, 3)
    ranks = [whole.of_rank(rank) for rank in range(11)]
    assert [[tensor.name for tensor in rank.inputs] for rank in ranks] == [["x"]] * 11
    assert [output.name for rank in ranks for output in rank.outputs] == [output.name for output in outputs]
    assert [len(rank.params) for rank in ranks[:3]] == [0, 1, 0]


def test_each_rank_has_cores_of_its_own() -> None:
    assert shares(frozenset({3, 1}), 2) == [[1], [3]]
    assert shares(frozenset(range(5)), 2) == [[0, 1], [2, 3]]
    allowed = os.sched_getaffinity(0)
    assert len(measuring_cpus(len(allowed))) == len(allowed)
    assert len(worker_cpus(0, len(allowed))) == len(allowed)


@pytest.mark.parametrize(
    ("size", "ranks", "lack"),
    [
        ("small", 2, ""),
        ("small,ranks=900", 900, "2 to 64 ranks, not 900"),
        ("small,ranks=1", 1, "2 to 64 ranks, not 1"),
        ("small,ranks=64", 64, f"64 cores for 64 ranks, found {len(os.sched_getaffinity(0))}"),
    ],
)
def test_the_number_of_ranks_is_read_from_the_text(tmp_path: Path, size: str, ranks: int, lack: str) -> None:
    if ranks in (2, 64) and not 2 <= len(os.sched_getaffinity(0)) < 64:
        pytest.skip("another number of cores")
    baseline = write_pair(tmp_path, HONEST, TWO_RANKS).baseline
    assert distributed.ranks(baseline, size) == ranks
    assert distributed.lacks(baseline, size) == lack


def test_a_target_of_one_process_has_no_ranks(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, "def run(a, b):\n    return a @ b\n")
    comparison = compare(pair, Options(LEAST, "small,ranks=2", "cpu", tmp_path))
    assert isinstance(comparison, Skip)
    assert comparison.missing == "one process, not 2 ranks"
    given = Options(LEAST, "small", "cpu", tmp_path, variables=distributed.read(["NCCL_ALGO=Ring"]))
    assert compare(pair, given).missing.startswith("several ranks")  # type: ignore[union-attr]


@NO_CORES
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_ranks_are_measured_verified_and_disclosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (process, group):  # what this thread waited before a round is no part of it
        monkeypatch.setattr(module, "own_delay", lambda: 10.0)
    given = distributed.read(["OMP_NUM_THREADS=1", "NCCL_ALGO=Tree", "NCCL_ALGO=Ring"])
    comparison = compare(
        write_pair(tmp_path, SEES, TWO_RANKS), Options(LEAST, "small", "cpu", tmp_path, variables=given)
    )
    assert isinstance(comparison, Comparison)
    assert {flag.code: flag.evidence for flag in comparison.flags}["rank_env"] == dict(given)
    assert comparison.verdict.value in ("inconclusive", "faster", "slower")
    assert comparison.verification is not None
    assert comparison.verification.failure is None
    assert comparison.verification.checked > 0
    assert (comparison.disclosed["ranks"], comparison.disclosed["backend"]) == (2, "gloo")
    assert "child_process" not in {flag.code for flag in comparison.flags}
    rounds = [json.loads(line) for line in Path(str(comparison.log_path)).read_text().splitlines()]
    timed = [line for line in rounds if line.get("kind") == "round" or "elapsed_s" in line]
    assert all(line["elapsed_s"] >= max(line["durations_ns"]) / 1e9 for line in timed)
    assert {line["late_s"] for line in timed} == {0.0}
    # Other programs may hold up a rank of any round.
    apart = {
        side: min(line["apart_ns"] for line in timed if line["side"] == side) for side in ("baseline", "candidate")
    }
    assert 0 <= apart["baseline"] < apart["candidate"]
    said = comparison.disclosed["ranks_apart"]
    assert re.fullmatch(r"the ranks of a call were \S+ µs apart, those of the candidate \S+ µs", said)
    assert replay(rounds).disclosed["ranks_apart"] == said


@pytest.mark.parametrize(
    ("goal", "device", "message"),
    [
        ("speed", "cuda", ""),
        ("memory", "cpu", ""),
        ("memory", "cuda", "device memory of 2 ranks"),
        ("energy", "cuda", "the energy of 2 ranks"),
        ("cold", "cpu", "the first call of 2 ranks"),
    ],
)
def test_goals_that_count_one_process_are_refused_by_name(goal: str, device: str, message: str) -> None:
    assert distributed.unmeasured(goal, 1, device) == ""
    missing = distributed.unmeasured(goal, 2, device)
    assert message in missing
    assert bool(message) == bool(missing)


@NO_CORES
@pytest.mark.torch
def test_a_cold_start_of_ranks_is_a_skip(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, HONEST, TWO_RANKS.replace("ranks = 2\n", 'ranks = 2\n    goal = "cold"\n'))
    comparison = compare(pair, Options(LEAST, "small", "cpu", tmp_path))
    assert isinstance(comparison, Skip)
    assert comparison.missing == "one process: the first call of 2 ranks is not measured"


@NO_CORES
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_last_rank_decides_and_every_rank_is_looked_at(tmp_path: Path) -> None:
    """The second rank alone returns a wrong sum; nothing of the first one's is wrong."""
    wrong = HONEST + "\nfirst = run\n\ndef run(share):\n    return first(share) + dist.get_rank()\n"
    comparison = judge(tmp_path, wrong, TWO_RANKS)
    assert comparison.verdict == "incorrect"
    [flag] = comparison.flags
    assert "rank01" in flag.message


@NO_CORES
@pytest.mark.torch
def test_a_rank_that_raises_ends_the_comparison(tmp_path: Path) -> None:
    broken = HONEST + "\nif dist.get_rank():\n    raise ValueError('no second rank')\n"
    comparison = judge(tmp_path, broken, TWO_RANKS)
    assert comparison.verdict == "incorrect"
    assert "rank 1" in comparison.flags[0].message
    assert "no second rank" in comparison.flags[0].message


@NO_CORES
@pytest.mark.torch
def test_a_rank_is_not_waited_for_long_after_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of NCCL waits for ever for a rank that skips its collective. About one processor second."""
    monkeypatch.setattr(group, "LAST_RANK_S", 0.5)
    waits = "import threading\nimport torch.distributed as dist\n\ndef run(share):\n    if not dist.get_rank():\n"
    waits += "        threading.Event().wait()\n    return share\n"
    comparison = judge(tmp_path, waits, TWO_RANKS)
    assert comparison.verdict == "invalid"
    assert "no answer of rank 0 within" in comparison.flags[0].message


@NO_CORES
@pytest.mark.torch
def test_a_number_that_is_no_literal_is_refused(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, HONEST, TWO_RANKS.replace("ranks = 2\n", "ranks = 1 + 2\n"))
    with pytest.raises(BenchmarkError) as refused:
        compare(pair, Options(LEAST, "small", "cpu", tmp_path))
    assert refused.value.code == "RANKS"


@NO_CORES
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_program_is_not_faster_and_nine_collectives_are_slower_than_one(tmp_path: Path) -> None:
    same = judge(tmp_path, HONEST, TWO_RANKS, PRESETS["quick"])
    assert same.verdict.value != "faster" or (same.ratio or 0.0) < 1.1
    slower = judge(tmp_path, TWICE, TWO_RANKS, PRESETS["quick"])
    assert slower.ratio is not None
    assert slower.ratio < 0.7
