"""Targets of several ranks beyond a comparison: over sizes, and under a profiler."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.profile.recording import commands, target_program

BASELINE = '''"""A sum over ranks."""
import torch
import torch.distributed as dist
from aisp_mcp.bench import DistributedBenchmark

class Total(DistributedBenchmark):
    rows, columns = 8, 16
    sizes = {"small": {"rows": 8}}
    def rank_inputs(self, rng):
        return [{"x": rng.randn(self.rows, self.columns)} for _ in range(self.ranks)]
    def run(self, x):
        total = x.clone()
        dist.all_reduce(total)
        return total
    def rank_reference(self, ranks):
        return [torch.stack([one["x"] for one in ranks]).sum(0)] * len(ranks)
'''
FORGETS = '''"""The first eight rows on the second rank, all of them on the first."""
import torch
import torch.distributed as dist

def run(x):
    total = x.clone()
    dist.all_reduce(total)
    total[8:] *= dist.get_rank() == 0
    return total
'''
DIES = '''"""A second rank that ends in its first call."""
import torch.distributed as dist

def run(x):
    if dist.get_rank():
        raise ArithmeticError("not with me")
    dist.all_reduce(x)
    return x
'''

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="2 ranks need 2 cores"),
]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "ch01"
    folder.mkdir(parents=True)
    (folder / "baseline_total.py").write_text(BASELINE)
    (folder / "optimized_total_forgets.py").write_text(FORGETS)
    (folder / "optimized_total_dies.py").write_text(DIES)
    return folder.parent


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_rank_is_looked_at_at_every_size_and_ranks_are_a_size(cli: Any, suite: Path) -> None:
    words = ["--bench-root", str(suite), "--json", "--no-boundaries"]
    done = cli("bench", "fuzz", "ch01:total_forgets", "--grid", "rows=8,9", "ranks=2,64", *words, timeout=280)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)["result"]
    (failing,) = report["failing"]
    assert (report["tested"], failing["sizes"]) == (2, {"rows": 9, "ranks": 2})
    assert "rank01" in failing["errors"][0]
    if len(os.sched_getaffinity(0)) < 64:
        assert report["skipped"][0]["missing"].startswith("64 cores for 64 ranks")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_first_rank_is_profiled_among_all(suite: Path, tmp_path: Path) -> None:
    subject = target_program.find((suite,), "ch01:total", "baseline")
    (trace, facts), ran = target_program.torch(subject, tmp_path / "profile", "full", 120)
    assert facts.get("error") is None
    assert (ran.ranks, ran.calls) == (2, 10)
    answer = json.loads(gzip.decompress(trace.read_bytes()))
    assert (answer["distributedInfo"]["rank"], answer["distributedInfo"]["world_size"]) == (0, 2)
    names = [event["name"] for event in answer["traceEvents"] if event.get("ph") == "X"]
    assert names.count("c10d::allreduce_") == 10


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_rank_that_ends_ends_the_pass(suite: Path, tmp_path: Path) -> None:
    subject = target_program.find((suite,), "ch01:total_dies", "candidate")
    with pytest.raises(Exception, match="script failed"):
        target_program.torch(subject, tmp_path / "profile", "full", 120)


def test_kernels_of_ranks_are_not_repeated_one_by_one(suite: Path, tmp_path: Path) -> None:
    subject = target_program.find((suite,), "ch01:total", "baseline")
    with pytest.raises(BenchmarkError, match="waits for other ranks") as refused:
        target_program.ncu(subject, "ncu", tmp_path, commands.LaunchSelection(count=1), 10)
    assert refused.value.code == "RANKS"
