"""A gain on some values only is no gain on all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aisp_mcp.judge import compare
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.measurement import Interval, Verification
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict import values

PLAIN = [1.0, 1.01, 0.25]  # the baseline, its repeat, and a candidate that is four times as fast


def replicates(count: int, **kinds: list[float]) -> list[Replicate]:
    return [Replicate(index, kinds={"plain": PLAIN, **kinds}) for index in range(count)]


def faster(count: int) -> Comparison:
    return Comparison(target="t", candidate="c", verdict=Verdict.FASTER, sentence="faster: 4x", ratio=4.0,
                      interval=Interval(low=3.9, high=4.1, level=0.95), margin=0.02, isolation="L2",
                      verification=Verification(calls=90, checked=45, undetected_share=0.1, oracle="exact"),
                      replicates=count)  # fmt: skip


def judged(count: int, **kinds: list[float]) -> Comparison:
    return values.on_all_kinds(faster(count), replicates(count, **kinds))


@pytest.mark.parametrize("count", [1, 5])
def test_a_gain_on_plain_values_only_is_undecided(count: int) -> None:
    result = judged(count, spikes=[1.0, 1.0, 1.0], zeros=[1.0, 1.0, 0.25])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "4.00x on usual ones, 0.995x on values with outliers" in result.sentence
    assert result.flags[0].evidence.keys() == {"plain", "spikes"}


def test_a_small_gain_names_the_margin_and_the_kinds_that_decide_nothing() -> None:
    noisy = faster(5).model_copy(update={"margin": 1.1})
    result = values.on_all_kinds(noisy, replicates(5, spikes=[1.0, 1.0, 0.5], tiny=[1.0, 1.0, 0.7]))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "1.99x on all kinds of inputs but tiny values, which is within the margin of 110 %" in result.sentence


def test_the_gain_that_holds_on_all_kinds_is_reported() -> None:
    result = judged(5, constant=[1.0, 1.0, 0.5])
    assert (result.verdict, result.ratio) == (Verdict.FASTER, pytest.approx(2.0, rel=0.01))
    assert result.interval
    assert result.interval.low == pytest.approx(3.9 / 2, rel=0.01)
    assert result.sentence.startswith("faster: 1.99x on all kinds of inputs, 45 of 90 timed calls verified; the gain")


@pytest.mark.parametrize(
    "kinds",
    [
        {"spikes": [1.0, 1.0, 0.26]},  # a few per cent
        {"spikes": [1.0, 1.6, 0.5]},  # a neighbour disturbed it
        {"spikes": [1.0, 1.0, 0.36, 0.46]},  # or the candidate alone, whose rounds are short
        {"spikes": [4.0, 4.0, 1.0]},  # both are slower there
        {"zeros": [1.0, 1.0, 0.01]},  # and quicker where it may
        {},
    ],
)
def test_noise_and_equal_changes_are_no_dependence(kinds: dict[str, list[float]]) -> None:
    assert judged(5, **kinds).sentence == "faster: 4x"


@pytest.mark.parametrize("kind", ["tiny", "huge", "beyond"])
def test_what_the_contract_excludes_and_the_processor_decides_is_named_only(kind: str) -> None:
    result = judged(5, **{kind: [1.0, 1.0, 2.0]})
    assert (result.verdict, result.ratio) == (Verdict.FASTER, 4.0)
    assert result.flags[0].code == "value_dependent"
    assert "0.50x on" in result.sentence


def test_one_replicate_that_disagrees_shows_noise() -> None:
    runs = replicates(3, spikes=[1.0, 1.0, 1.0])
    runs[1].kinds["spikes"] = PLAIN
    assert values.worse_kinds(runs) == {}


def test_kinds_are_timed_again_where_they_look_worse_or_the_baselines_differ() -> None:
    assert not values.looks_worse([1.0, 1.0, 0.26], PLAIN)
    assert values.looks_worse([1.0, 1.0, 0.28], PLAIN)
    assert values.looks_worse([1.0, 1.2, 0.26], PLAIN)
    assert not values.looks_worse([1.0, 1.0, 0.4, 0.26], PLAIN)


@pytest.mark.parametrize(
    ("facts", "names"),
    [({"inputs_not_tested": {"thousands": "not finite"}}, ["spikes", "zeros"]), ({}, ["ties", "skewed"])],
    ids=["floats", "integers"],
)
def test_later_replicates_leave_out_the_kinds_on_which_one_gained_as_much(
    facts: dict[str, Any], names: list[str]
) -> None:
    """In a stand-in for the processes, only values with outliers take the candidate as long as the baseline. Of
    integers, these are values with ties.
    """
    filled: list[str] = []
    session = SimpleNamespace(
        adversarial=["spikes", "zeros"], opened={"goal": "speed", "facts": facts}, as_quick_kinds=set(),
        random=random.Random(1), options=SimpleNamespace(device="cpu"),
    )  # fmt: skip

    def run_round(driver: Any, role: Role, count: int) -> SimpleNamespace:
        is_quick = role is Role.CANDIDATE and filled[-1] != "spikes"
        return SimpleNamespace(running_s=count * (0.25e-3 if is_quick else 1e-3), count=count)

    runs = [Replicate(index) for index in range(2)]
    for result in runs:
        driver: Any = SimpleNamespace(
            session=session, result=result, call_s=dict.fromkeys(Role, 1e-3), most_calls=lambda _: 8,
            fill=lambda _, mode: filled.append(mode),
        )  # fmt: skip
        ReplicateRun(driver, cast(Any, SimpleNamespace(run_round=run_round))).time_kinds()
    assert [*Counter(filled).items()] == [("plain", 12), ("spikes", 12), ("zeros", 1)]
    assert [len(runs[0].kinds[name]) for name in ("plain", *names)] == [4, 4, 3]
    assert values.worse_kinds(runs).keys() == {names[0]}


SORTS = "import torch\n\ndef f(x):\n    for _ in range({}):\n        x.sort()\n    return x.sort().values\n"
BASE, SMALL_ONLY = SORTS.format("5"), SORTS.format("120 * int(x.abs().amax() > 2)")


def test_a_branch_on_the_size_of_values_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine, its pair of processes may not even show that it is six times as fast: then what was timed on
    each kind of inputs is what a verdict without noise would be given.
    """
    files = [tmp_path / "base.py", tmp_path / "small_only.py"]
    for file, text in zip(files, (BASE, SMALL_ONLY), strict=True):
        file.write_text(text)
    timed = list[Replicate]()

    def spy(result: Comparison, replicates: Sequence[Replicate]) -> Comparison:
        timed.extend(replicates)
        return on_all_kinds(result, replicates)

    on_all_kinds = values.on_all_kinds
    monkeypatch.setattr(values, "on_all_kinds", spy)
    result = compare(*map(str, files), inputs="x=uniform(-1,1,16,256)", preset="quick")
    if result.verdict is not Verdict.FASTER:
        result = on_all_kinds(faster(1), timed)
    assert "value_dependent" in {flag.code for flag in result.flags}, result.sentence
    assert "on values beyond the declared range" in result.sentence
