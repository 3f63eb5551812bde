"""Holes in contracts, as an author looks for them: which altered baselines a target accepts, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def mutants(cli_here: Any, tmp_path: Path) -> Any:
    """Report on a baseline with that tolerance and body, and the command's exit code."""

    def searched(body: str, tolerance: str = "", rest: str = "") -> tuple[dict[str, Any], int]:
        folder = tmp_path / "suite" / "ch01"
        folder.mkdir(parents=True, exist_ok=True)
        text = SPEC.format(body=body, tolerance=f"tolerance = Tolerance({tolerance})", rest=rest)
        (folder / "baseline_rows.py").write_text(text)
        done = cli_here("bench", "mutants", "ch01:rows", "--bench-root", str(folder.parent), "--json")
        (target,) = json.loads(done.stdout)["result"]["targets"]
        return target, done.returncode

    return searched


def accepted(target: dict[str, Any]) -> set[str]:
    return {f"{one['kind']}: {one['what']}" for one in target["accepted"]}


def test_a_strict_contract_leaves_only_the_parameter_that_is_always_one(mutants: Any) -> None:
    target, code = mutants("torch.logsumexp(x, 1) * gain")
    assert accepted(target) == {"ignore a parameter: gain taken as ones"}
    assert target["rejected"] >= 12
    assert code == 3


def test_a_loose_contract_accepts_a_block_that_is_never_computed(mutants: Any) -> None:
    target, code = mutants("torch.logsumexp(x, 1) * gain", tolerance="approximate=0.5")
    assert "skip a block: the last eighth of each output is zero" in accepted(target)
    assert code == 3
    assert target["contract"] == "approximation within 0.5"


def test_a_baseline_that_handles_nan_is_told_that_its_inputs_hold_none(mutants: Any) -> None:
    target, _ = mutants("torch.nanmean(x, 1) * gain")
    assert "treat NaN as a number: nanmean (call 1)" in accepted(target)


def test_recycled_draws_are_rejected(mutants: Any) -> None:
    target, _ = mutants("x + torch.randn_like(x) * gain", tolerance="stochastic=True", rest=DRAWS)
    assert not {one for one in accepted(target) if one.startswith("recycle")}
    assert target["contract"] == "random draws"


def test_a_baseline_that_raises_is_a_failure_with_its_message(cli_here: Any, tmp_path: Path) -> None:
    folder = tmp_path / "suite" / "ch01"
    folder.mkdir(parents=True)
    text = SPEC.format(body="x.no_such_thing()", tolerance="", rest="")
    (folder / "baseline_rows.py").write_text(text)
    done = cli_here("bench", "mutants", "ch01:rows", "--bench-root", str(folder.parent), "--json")
    (failed,) = json.loads(done.stdout)["result"]["failed"]
    assert "no_such_thing" in failed["message"]
