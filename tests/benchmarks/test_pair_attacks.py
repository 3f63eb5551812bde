"""Attacks on shipped targets, each of the kind that its workload invites: all are refused.

`attacks/<chapter>_<target>_<kind>.py` attacks the target that its name begins with.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import MODES, Agreement, targets

from aisp_mcp.suites.records import Target, Variant

ATTACKS = sorted(Path(__file__).with_name("attacks").glob("*.py"))
IDS = [path.stem for path in ATTACKS]
TARGETS = targets()

pytestmark = pytest.mark.torch


def attacked(path: Path) -> Target:
    """The target with the longest name that the file's begins with."""
    spelled = {t.name.replace(":", "_").replace("/", "_"): t for t in TARGETS}
    return spelled[max((name for name in spelled if path.stem.startswith(f"{name}_")), key=len)]


def test_one_target_in_five_of_a_chapter_is_attacked() -> None:
    chapters = {attacked(path).chapter for path in ATTACKS}
    assert len(ATTACKS) >= sum(target.chapter in chapters for target in TARGETS) // 5


@pytest.mark.parametrize("path", ATTACKS, ids=IDS)
def test_an_attack_is_no_match_for_the_oracle(path: Path) -> None:
    variant = Variant(name="attack", path=str(path), summary="")
    agreement = Agreement(attacked(path))
    run = agreement.runner(variant)
    run(agreement.inputs(4))  # what is kept of this call would be served again
    assert next(agreement.judged(run, (*MODES, *["plain"] * 40)), None)  # some fail only now and then


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", ATTACKS, ids=IDS)
def test_an_attack_is_refused_by_the_judge(path: Path, tmp_path: Path) -> None:
    from aisp_mcp.judge.comparison import compare
    from aisp_mcp.judge.options import Options
    from aisp_mcp.judge.pair import Pair
    from aisp_mcp.judge.presets import Preset
    from aisp_mcp.judge.records.verdict import Comparison

    target = attacked(path)
    pair = Pair(target.name, Path(target.path), "attack", path)
    comparison = compare(pair, Options(Preset("least", 1, 0.004, 1), "small", "cpu", tmp_path))
    assert isinstance(comparison, Comparison)
    assert comparison.verdict.value in ("incorrect", "invalid"), comparison.sentence
