"""Attacks on shipped targets, each of the kind that its workload invites: all are refused.

`attacks/<chapter>_<target>_<kind>.py` attacks the target that its name begins with.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import MODES, Agreement, few, targets

from aisp_mcp.suites.records import Target, Variant

ATTACKS = sorted(Path(__file__).with_name("attacks").glob("*.py"))
IDS = [path.stem for path in ATTACKS]
TARGETS = targets()
# More than 0.5 s of processor each until the oracle refuses them.
COSTLY = {
    "ch12_packed_queue_dropped_tokens", "ch13_adamw_steps_extrapolated", "ch13_adamw_steps_untouched_weights",
    "ch13_gradient_accumulation_kept_state", "ch13_training_quality_overfitted", "ch14_sliding_window_wrong_mask",
    "ch15_moe_experts_dropped_tokens", "ch15_prefix_sharing_stale_prefix", "ch16_int8_weights_decode_four_bits",
    "ch17_early_exit_one_layer_early", "ch18_block_sparse_diagonal_only", "ch18_speculative_decode_unverified",
    "ch19_states_int8_fewer_steps", "ch20_decode_loop_skipped_layer", "labs_moe_journey_moe_layer_first_expert",
    "labs_recsys_ranking_rank_truncated", "labs_training_hotpath_gradient_clip_expected_norm",
}  # fmt: skip

pytestmark = pytest.mark.torch


def attacked(path: Path) -> Target:
    """The target with the longest name that the file's begins with."""
    spelled = {t.name.replace(":", "_").replace("/", "_"): t for t in TARGETS}
    return spelled[max((name for name in spelled if path.stem.startswith(f"{name}_")), key=len)]


def test_one_target_in_five_of_a_chapter_is_attacked() -> None:
    chapters = {attacked(path).chapter for path in ATTACKS}
    assert not COSTLY - {*IDS}
    assert len(ATTACKS) >= sum(target.chapter in chapters for target in TARGETS) // 5


@pytest.mark.parametrize("path", few(ATTACKS, IDS, COSTLY))
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
