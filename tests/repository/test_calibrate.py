"""The calibration counts rightly, keeps what it has measured, and holds the real judge to a small version."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LoadTool = Callable[[str], ModuleType]
RUN = {
    "effect": 0.0,
    "busy": False,
    "replicates": 5,
    "palindromes": 9,
    "round_s": 0.02,
    "verdict": "same",
    "seconds": 3.0,
}
RUN |= {"ratio": 1.02, "low": 1.01, "high": 1.03, "noise_floor": 0.005}


@pytest.fixture
def calibrate(load_tool: LoadTool, root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "tools"))
    return load_tool("calibrate")


def plan(calibrate: Any, **changes: Any) -> Any:
    usual = {"device": "cpu", "runs": 1, "replicates": 2, "round_s": 0.01, "palindromes": 1, "elements": 1500}
    return calibrate.Plan(**{**usual, "effects": (0.0,), "busy": False, **changes})


def test_planted_numbers_give_the_planted_difference(calibrate: Any) -> None:
    effects = (0.0, 1.0, 2.0, -1.0, -2.0, 50.0)
    assert [calibrate.numbers_for(p, 1500) for p in effects] == [1500, 1485, 1471, 1515, 1531, 1000]
    for effect in (1.0, 2.0, 5.0, -2.0):
        assert 1500 / calibrate.numbers_for(effect, 1500) == pytest.approx(1 + effect / 100, rel=0.001)
    with pytest.raises(ValueError, match="too few"):
        calibrate.numbers_for(0.1, 1500)
    with pytest.raises(ValueError, match="to spare"):
        calibrate.numbers_for(60.0, 1500)


def test_baseline_and_candidate_differ_in_the_count_of_numbers_only(calibrate: Any, tmp_path: Path) -> None:
    pairs = calibrate.write_pairs(tmp_path, plan(calibrate, effects=(0.0, 2.0)))
    same, faster = (ast.unparse(ast.parse(pairs[p].path.read_text()).body[-1].body[0]) for p in (0.0, 2.0))
    assert same.replace(":1500", ":1471") == faster
    assert same in ast.unparse(ast.parse(pairs[0.0].baseline.read_text()))


@pytest.mark.parametrize(("hits", "total"), [(0, 500), (5, 500), (24, 500), (1, 1), (500, 500)])
def test_upper_bound_is_clopper_pearson(calibrate: Any, hits: int, total: int) -> None:
    from scipy import stats as oracle

    exact = oracle.binomtest(hits, total, alternative="less").proportion_ci(0.95, method="exact").high
    assert calibrate.upper_bound(hits, total) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "claimed"),
    [
        ({}, True),
        ({"low": 0.99}, False),
        ({"noise_floor": 0.03}, False),
        ({"ratio": 0.97, "low": 0.96, "high": 0.98}, True),
        ({"ratio": None, "low": None, "high": None, "noise_floor": None}, False),
        ({"verdict": "invalid"}, False),
    ],
)
def test_a_recorded_run_is_judged_again_without_margin(calibrate: Any, changes: dict[str, Any], claimed: bool) -> None:
    assert calibrate.without_margin({**RUN, **changes}) is claimed


def test_a_record_is_added_to_and_shown(calibrate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "calibration-cpu.json"
    for number in range(3):
        record = calibrate.load(target)
        record["runs"].append({**RUN, "verdict": "faster" if number else "same"})
        calibrate.save(target, record)
    assert len(json.loads(target.read_text())["runs"]) == 3
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    calibrate.show_real(calibrate.load(target))
    assert (
        "| no | 5 | 9 | 20 ms | +0 % | 3 | 100.0 % (<= 100.0) | 66.7 % (<= 98.3) | 0 | 3.0 |" in capsys.readouterr().out
    )


def test_a_neighbour_spins_and_ends(calibrate: Any) -> None:
    import psutil

    def spinners() -> list[psutil.Process]:
        living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
        return [p for p in living if calibrate.SPIN in p.cmdline()]

    with calibrate.neighbour(True):
        (spinner,) = spinners()
        assert spinner.is_running()
    assert not spinner.is_running()
    with calibrate.neighbour(False):
        assert not spinners()


def test_the_simulation_can_be_saved_and_shown(
    calibrate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "calibration-simulated.json"
    calibrate.save(target, calibrate.calibration_model.simulate(10))
    calibrate.show_simulated(calibrate.load(target))
    assert "| heavy tails (t3) | 5 | 2 % |" in capsys.readouterr().out


def test_what_is_recorded_of_the_simulation_keeps_the_promises(root: Path) -> None:
    record = json.loads((root / "results/calibration-simulated.json").read_text())
    equal = [line for line in record["estimators"] if line["effect"] == 0 and "louder" not in line["noise"]]
    assert len(equal) == 8
    for line in equal:
        assert line["called_different"]["gate, margin 0"] <= 0.05
        assert line["called_different"]["gate, default margin"] <= 0.01


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_real_judge_knows_the_sign_of_a_planted_difference(calibrate: Any, tmp_path: Path) -> None:
    target = tmp_path / "calibration-cpu.json"
    planted = plan(calibrate, runs=2, round_s=0.03, effects=(50.0, -60.0))
    calibrate.measure(planted, target)
    faster, slower = json.loads(target.read_text())["runs"]
    # On a busy machine the judge may be unsure of anything, but it is never wrong about the sign.
    assert faster["verdict"] in ("faster", "inconclusive")
    assert slower["verdict"] in ("slower", "inconclusive")
    assert slower["ratio"] < 0.8 < 1.25 < faster["ratio"]
