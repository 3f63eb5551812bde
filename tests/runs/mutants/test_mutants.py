"""Holes in contracts, as an author looks for them: which altered baselines a target accepts, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.mutants import search
from aisp_mcp.judge.protocol.module_loader import load_spec
from aisp_mcp.runs.mutants import report
from aisp_mcp.store.records.run import Failure

pytestmark = [pytest.mark.torch]
SPEC = '''"""A statistic of rows."""
import torch
from aisp_mcp.bench import Benchmark, Tolerance
class Rows(Benchmark):
    {tolerance}
    def params(self, rng):
        return {{"gain": torch.ones(1)}}
    def inputs(self, rng):
        return {{"x": rng.randn(64, 512)}}
    def run(self, x, gain):
        return {body}
    {rest}
'''
DRAWS = "def reference(self, x, gain):\n        return x.double()"


def suite(folder: Path, body: str, tolerance: str = "", rest: str = "") -> Path:
    """A suite of one baseline with that tolerance and body."""
    chapter = folder / "suite" / "ch01"
    chapter.mkdir(parents=True)
    text = SPEC.format(body=body, tolerance=f"tolerance = Tolerance({tolerance})", rest=rest)
    (chapter / "baseline_rows.py").write_text(text)
    return chapter.parent


def accepted(mutants: list[dict[str, Any]]) -> set[str]:
    return {f"{one['kind']}: {one['what']}" for one in mutants if one["status"] == "accepted"}


@pytest.fixture
def searched(tmp_path: Path) -> Any:
    """The result of a search in this process: the baseline's contract, and the mutants that it accepts."""

    def find(*baseline: str, **parts: str) -> tuple[str, set[str]]:
        spec = load_spec(suite(tmp_path, *baseline, **parts) / "ch01" / "baseline_rows.py", "small")
        answer = search.results(spec, seconds=20.0, most=120)
        return answer["contract"], accepted(answer["mutants"])

    return find


def test_a_strict_contract_leaves_only_the_parameter_that_is_always_one(cli_here: Any, tmp_path: Path) -> None:
    root = suite(tmp_path, "torch.logsumexp(x, 1) * gain")
    done = cli_here("bench", "mutants", "ch01:rows", "--bench-root", str(root), "--json")
    (target,) = json.loads(done.stdout)["result"]["targets"]
    assert accepted(target["accepted"]) == {"ignore a parameter: gain taken as ones"}
    assert target["rejected"] >= 12
    assert done.returncode == 3


def test_a_loose_contract_accepts_a_block_that_is_never_computed(searched: Any) -> None:
    contract, mutants = searched("torch.logsumexp(x, 1) * gain", tolerance="approximate=0.5")
    assert "skip a block: the last eighth of each output is zero" in mutants
    assert contract == "approximation within 0.5"


def test_a_baseline_that_handles_nan_gets_inputs_that_hold_some(searched: Any) -> None:
    assert searched("torch.nanmean(x, 1) * gain")[1] == {"ignore a parameter: gain taken as ones"}


def test_recycled_draws_are_rejected(searched: Any) -> None:
    contract, mutants = searched("x + torch.randn_like(x) * gain", tolerance="stochastic=True", rest=DRAWS)
    assert not {one for one in mutants if one.startswith("recycle")}
    assert contract == "random draws"


def test_a_baseline_that_raises_is_a_failure_with_its_message(tmp_path: Path) -> None:
    answer = search._answer(suite(tmp_path, "x.no_such_thing()") / "ch01" / "baseline_rows.py", "small", 20.0, 120)
    failed = report._row("ch01:rows", answer)
    assert isinstance(failed, Failure)
    assert failed.code == "BASELINE_RAISED"
    assert "no_such_thing" in failed.message
