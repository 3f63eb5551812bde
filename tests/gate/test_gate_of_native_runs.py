"""Stored runs of C++ candidates: compiled again from the files that the runs kept, and gated like Python ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.native import build

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(build.compiler(".cpp") is None, reason="no C++ compiler"),
]
PROBLEM = '''"""Doubled numbers."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(512, 128)]


def get_init_inputs():
    return []
'''
SPEC = '''"""Doubled numbers."""
from aisp_mcp.bench import Benchmark, Work


class Double(Benchmark):
    n = 1 << 16

    def inputs(self, rng):
        return {"x": rng.randn(self.n)}

    def work(self):
        return Work(flops=self.n, bytes=8 * self.n)

    def run(self, x):
        return x * 2
'''
LOOP = """/* One loop, {times} times.

launch:
  function: twice
  arguments: [x, out, x.numel]
  outputs: {{out: {{like: x}}}}
*/
#include <cstdint>
extern "C" int twice(const float* x, float* out, int64_t n) {{
    for (int times = 0; times < {times}; ++times)
        for (int64_t i = 0; i < n; ++i) reinterpret_cast<volatile float*>(out)[i] = x[i] * {factor};
    return 0;
}}
"""
QUICK, SLOW, WRONG = (LOOP.format(times=t, factor=f) for t, f in ((1, "2"), (50, "2"), (1, "2.5f")))
PYTHON = "def run(x):\n    for _ in range(200):\n        y = x + x\n    return y\n"


def answer(done: Any) -> dict[str, Any]:
    """The answer of a command."""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def outcomes(gate: dict[str, Any]) -> dict[str, str]:
    """The outcome of each benchmark."""
    return {row["target"]: row["outcome"] for row in gate["rows"]}


@pytest.fixture(autouse=True)
def direct(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process, without walls: they are not what is tested."""
    monkeypatch.setenv("AISP_ISOLATION", "L1")
    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")


def test_cpp_candidates_of_an_adapted_problem_are_gated(cli_here: Any, tmp_path: Path) -> None:
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "rows.py").write_text(PROBLEM)
    runs = []
    for worse, other in ((QUICK, QUICK), (SLOW, WRONG)):
        (folder / "rows_worse.cpp").write_text(worse)
        (folder / "rows_other.cpp").write_text(other)
        done = cli_here("bench", "run", "--from", f"kernelbench:{folder}", "--preset", "quick", "--json")
        runs.append(answer(done)["result"]["run_id"])
    folder.rename(tmp_path / "gone")  # the files that the runs stored are enough
    done = cli_here("bench", "gate", "--base", "last~1", "--head", "last", "--preset", "quick", "--json")
    gate = answer(done)["result"]
    expected = {"kernelbench:rows_worse_cpp": "regressed", "kernelbench:rows_other_cpp": "wrong"}
    assert (done.returncode, outcomes(gate)) == (3, expected)
    assert [gate["base"], gate["head"]] == runs
    sources = Path(gate["comment_path"]).parent / "sources" / "kernelbench-rows_worse_cpp"
    kept = [
        (sources / name / "optimized_rows_worse.cpp").read_text() for name in ("baseline_source", "candidate_source")
    ]
    assert kept == [QUICK, SLOW]


def test_a_candidate_that_was_rewritten_in_cpp_keeps_its_name(
    cli_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter = tmp_path / "suite" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "baseline_double.py").write_text(SPEC)
    monkeypatch.setenv("AISP_BENCH_ROOT", str(tmp_path / "suite"))
    for name, text in (("mine.py", PYTHON), ("mine.cpp", QUICK)):
        (tmp_path / name).write_text(text)
        words = ("ch01:double", "--candidate", str(tmp_path / name), "--preset", "quick", "--json")
        (verdict,) = answer(cli_here("bench", "verify", *words))["result"]["rulings"]
        assert verdict["target"] == "ch01:double_mine"
    named = ("--base", "last~1", "--head", "last", "--targets", "ch01:double_mine")
    done = cli_here("bench", "gate", *named, "--preset", "quick", "--json")
    assert outcomes(answer(done)["result"]) == {"ch01:double_mine": "improved"}
