"""Two stored runs in place of two commits: the files that they kept become the suites that the gate compares."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.gate import comment, pairs, stored_runs
from aisp_mcp.gate.comment import gate_comment
from aisp_mcp.gate.records import GateReport, GateRow
from aisp_mcp.runs.export import junit
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run

SPEC = '"""Rows."""\nfrom aisp_mcp.bench import Benchmark\n\n\nclass Rows(Benchmark):\n    pass\n'
NATIVE = """/* Row sums.

launch:
  function: rows
  arguments: [a, out, ARGUMENT]
  outputs: {out: {like: a}}
*/
"""


def stored(ctx: Context, name: str, candidate: str, variant: str = "tiled", language: str | None = None) -> Run:
    compared = {"target": "labs/mine:rows", "candidate": variant, "verdict": "faster", "sentence": "faster"}
    facts = {"created_at": 1.0, "preset": "default", "profile": "portable", "environment": {}}
    disclosed = {"build": {"language": language}} if language else {}
    comparison = {**compared, "disclosed": disclosed, "isolation": "L2", "replicates": 5}
    run = Run.model_validate({"id": name, **facts, "comparisons": [comparison]})
    ctx.store.save_run(run, None)
    folder = ctx.store.run_dir(name) / "sources" / f"labs-mine-rows_{variant}"
    folder.mkdir(parents=True)
    (folder / "baseline.py").write_text(SPEC)
    (folder / "candidate.py").write_text(candidate)
    return run


@pytest.fixture
def ctx(home: Path) -> Context:
    return Context(settings=Settings.from_env({"AISP_HOME": str(home)}))


def test_kept_files_are_found_as_benchmarks(ctx: Context, tmp_path: Path) -> None:
    stored(ctx, "r_before", "def run(a):\n    return a.sum(1)\n")
    stored(ctx, "r_after", "def run(a):\n    return a.mean(1)\n")
    assert stored_runs.runs(ctx, "origin/main", None) is None
    assert stored_runs.runs(ctx, "main", "r_after") is None
    both = stored_runs.runs(ctx, "last~1", "r_after")
    assert both is not None
    assert [run.id for run in both] == ["r_before", "r_after"]
    checkout = stored_runs.checkout(ctx, both[1], tmp_path / "head")
    (candidate,) = pairs.find_candidates(checkout, [stored_runs.ROOT], ["*"]).values()
    assert (checkout.commit, "mean" in candidate.path.read_text()) == ("r_after", True)


@pytest.mark.parametrize(
    ("variant", "language", "file"),
    [
        ("tiled_cpp", "C++", "optimized_rows_tiled.cpp"),
        ("cpp", "C++", "optimized_rows.cpp"),
        ("cu", "CUDA C++", "optimized_rows.cu"),
        ("tiled", "CUDA C++", "optimized_rows_tiled.cu"),  # a file that was given to `bench verify`
    ],
)
def test_kept_files_in_cpp_and_cuda_have_the_names_of_their_run(
    ctx: Context, tmp_path: Path, variant: str, language: str, file: str
) -> None:
    text = NATIVE.replace("ARGUMENT", "stream" if file.endswith(".cu") else "a.numel")
    run = stored(ctx, "r_native", text, variant, language)
    checkout = stored_runs.checkout(ctx, run, tmp_path / "head")
    for name in ("*", f"labs/mine:rows_{variant}"):
        ((label, candidate),) = pairs.find_candidates(checkout, [stored_runs.ROOT], [name]).items()
        assert (label, candidate.path.name) == (f"labs/mine:rows_{variant}", file)


def test_the_gate_takes_runs_outside_of_a_repository(cli_here: Any, ctx: Context, tmp_path: Path) -> None:
    for name in ("r_before", "r_after"):
        stored(ctx, name, "def run(a):\n    return a\n")
        shutil.rmtree(ctx.store.run_dir(name) / "sources")
    done = cli_here("bench", "gate", "--base", "r_before", "--head", "r_after", "--repo", str(tmp_path), "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["message"]) == ("NOTHING_KEPT", "Run r_before has no files to measure again.")


def test_a_gain_that_is_a_lower_bound_says_at_least() -> None:
    row = GateRow(target="ch01:a", outcome="improved", sentence="s", ratio=2.0, low=1.9, high=2.1, at_least=True)
    facts = {"run_id": "r_1", "passed": True, "base": "b" * 40, "head": "c" * 40, "reasons": [], "seconds": 1.0}
    report = GateReport.model_validate({**facts, "rows": [row]})
    assert "at least 2.000x" in gate_comment(report)
    assert b"ratio at least 2 (" in junit.to_junit(comment.of_gate(report, {}), "gate", 1.0, 1.0, {})
