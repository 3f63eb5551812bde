"""Pareto, metrics side by side, combinations and limits, over hand-made runs."""

from __future__ import annotations

import pytest
from analyze_runs import GPU, pair, run_of

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.analysis import metrics, pareto, stacking, variants, whatif
from aisp_mcp.runs.analysis.variants import Range
from aisp_mcp.store.records.run import Run

MB = 1_000_000


def points(*runs: Run) -> dict[str, pareto.Point]:
    [front] = pareto.fronts(variants.variants(variants.pairs(runs)[0]))
    return {point.name: point for point in front.points}


def test_dominated_only_where_intervals_separate() -> None:
    rows = points(
        run_of(
            pair("fast", 4.0, memory=(100 * MB, 100 * MB)),
            pair("lean", 2.0, memory=(100 * MB, 50 * MB)),
            pair("both_worse", 1.5, memory=(100 * MB, 120 * MB)),
            pair("noisy", 3.9, width=0.3, memory=(100 * MB, 100 * MB)),
        )
    )
    assert {name for name, point in rows.items() if point.frontier} == {"ch01:a_fast", "ch01:a_lean", "ch01:a_noisy"}
    # Even the noisy one is at worst three times as fast as the baseline, whose memory it has.
    assert rows["ch01:a_both_worse"].dominated_by == ["ch01:a_fast", "ch01:a_lean", "ch01:a_noisy"]
    assert rows["ch01:a baseline"].dominated_by == ["ch01:a_fast", "ch01:a_lean", "ch01:a_noisy"]
    assert rows["ch01:a_noisy"].time_interval_s == pytest.approx([1e-3 / 3.9 / 1.3, 1e-3 / 3.9 * 1.3])


def test_a_metric_that_one_variant_lacks_is_not_compared() -> None:
    run = run_of(pair("fast", 4.0, memory=(100, 100)), pair("blind", 2.0))
    [front] = pareto.fronts(variants.variants(variants.pairs([run])[0]))
    assert front.metrics == ["time_s"]
    assert front.without == ["memory_bytes", "energy_j"]
    assert [point.name for point in front.points if point.frontier] == ["ch01:a_fast"]


def test_variants_of_two_machines_never_meet() -> None:
    here, there = run_of(pair("x", 4.0)), run_of(pair("y", 1.1), run_id="r_2", gpu=GPU)
    fronts = pareto.fronts(variants.variants(variants.pairs([here, there])[0]))
    assert [front.machine for front in fronts] == ["cpu: test cpu", "NVIDIA H200"]
    assert all(len(front.points) == 2 for front in fronts)


def test_the_newest_believable_comparison_counts() -> None:
    wrong = run_of(pair("x", 9.0, verdict=Verdict.INCORRECT), run_id="r_3")
    rows, left_out = variants.pairs([wrong, run_of(pair("x", 3.0), run_id="r_2"), run_of(pair("x", 2.0))])
    assert [(submission.ratio, submission.candidate.run) for submission in rows] == [(3.0, "r_2")]
    assert left_out == ["ch01:a_x is incorrect in r_3"]


def test_every_metric_side_by_side_with_signs_by_direction() -> None:
    run = run_of(pair("x", 2.0, memory=(100, 150), work=(4e6, 8e6)))
    energies = {("cpu: test cpu", "ch01:a baseline"): Range(value=3, low=2.9, high=3.1)}
    energies["cpu: test cpu", "ch01:a_x"] = Range(value=2, low=1.9, high=2.1)
    shares = {("r_1", "ch01:a baseline"): 0.2, ("r_1", "ch01:a_x"): 0.4}
    table = metrics.side_by_side(variants.pairs([run], shares, energies)[0][0])
    said = {row.metric: (row.improvement, row.percent, row.told_apart) for row in table.metrics}
    assert said["time_s"] == (pytest.approx(2), pytest.approx(100), True)
    assert said["memory_bytes"] == (pytest.approx(2 / 3), pytest.approx(-100 / 3), True)
    assert said["energy_j"] == (pytest.approx(1.5), pytest.approx(50), True)
    assert said["flops_per_s"] == (pytest.approx(2), pytest.approx(100), None)
    assert said["bytes_per_s"][0] == said["of_ceiling"][0] == pytest.approx(2)
    assert table.without == []
    rates = {row.metric: (row.baseline, row.candidate) for row in table.metrics}
    assert rates["flops_per_s"] == (pytest.approx(4e9), pytest.approx(8e9))


def test_times_within_the_noise_are_not_told_apart() -> None:
    [rows], _ = variants.pairs([run_of(pair("x", 1.005, width=0.02))])
    assert metrics.side_by_side(rows).metrics[0].told_apart is False


@pytest.mark.parametrize(
    ("both", "width", "kind", "combine"),
    [
        (6.0, 0.01, "independent", True),
        (7.0, 0.01, "synergy", True),
        (4.0, 0.01, "interference", True),
        (2.0, 0.01, "interference", False),
        (6.0, 0.10, "undecided", True),
        (3.01, 0.01, "interference", None),
    ],
)
def test_stacking_of_two_and_three_times(both: float, width: float, kind: str, combine: bool | None) -> None:
    run = run_of(pair("fused", 2.0, width), pair("tf32", 3.0, width), pair("fused_tf32", both, width))
    [row] = stacking.stacks(variants.pairs([run])[0])
    assert (row.a, row.b, row.both) == ("ch01:a_fused", "ch01:a_tf32", "ch01:a_fused_tf32")
    assert row.interaction == pytest.approx(both / 6)
    half = 3**0.5  # three equal half-widths in root-sum-square
    assert row.interval == pytest.approx([both / 6 / (1 + width) ** half, both / 6 * (1 + width) ** half])
    assert (row.kind, row.combine) == (kind, combine)


def test_a_variant_of_two_words_is_no_combination_of_one() -> None:
    run = run_of(pair("fused", 2.0), pair("fused_tf32", 3.0))
    assert stacking.stacks(variants.pairs([run])[0]) == []


def test_limits_are_met_by_the_unfavourable_end_of_the_interval() -> None:
    run = run_of(pair("lean", 2.0, width=0.1, memory=(900, 500)), pair("near", 1.7, width=0.1, memory=(900, 500)))
    rows = variants.variants(variants.pairs([run])[0])
    met, missed = whatif.solve(rows, whatif.Limits(memory_bytes=600, latency_s=0.6e-3))
    assert [variant.name for variant in met] == ["ch01:a_lean"]  # 0.5 ms, at worst 0.55 ms
    assert [variant.name for variant in missed] == ["ch01:a_near", "ch01:a baseline"]
    assert missed[0].latency_margin == pytest.approx((0.6 - 1.1 / 1.7) / 0.6)
    assert missed[0].memory_margin == pytest.approx(1 / 6)
    assert missed[1].sentence == "misses memory by 50 %, latency by 68.3 %"


def test_a_limit_without_a_figure_is_not_met() -> None:
    rows = variants.variants(variants.pairs([run_of(pair("x", 2.0))])[0])
    met, missed = whatif.solve(rows, whatif.Limits(memory_bytes=1e9, calls_per_s=1500))
    assert met == []
    assert [variant.unknown for variant in missed] == [["memory"], ["memory"]]
    assert missed[0].throughput_margin == pytest.approx((2000 / 1.02 - 1500) / 1500)
