"""Runs under different conditions are not judged, and the answer says how to judge them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.changes import triage as run_triage
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run

FILES = {"sources/ch07-row_sum/candidate.py": "a" * 64}


def comparison(ratio: float, low: float, high: float, **more: Any) -> Comparison:
    facts = {"target": "ch07:row_sum", "candidate": "", "verdict": "faster", "sentence": "faster", "noise_floor": 0.05}
    interval = {"low": low, "high": high}
    return Comparison.model_validate(
        {**facts, "ratio": ratio, "interval": interval, "isolation": "L2", "replicates": 5, **more}
    )


def run(name: str, compared: Comparison, load: float = 0.004, **more: Any) -> Run:
    environment = {
        "host": {"cpu": "x", "usable": 2},
        "software": {"torch": "2.9"},
        "during": {"pressure": {"cpu_some": load}, "steal_share": 0.0, "flags": []},
        **more.pop("environment", {}),
    }
    facts = {"created_at": 1.0, "preset": "default", "profile": "portable", "sources": FILES, **more}
    return Run.model_validate({"id": name, "environment": environment, "comparisons": [compared], **facts})


def quiet() -> Run:
    return run("r_quiet", comparison(10.5, 9.4, 11.8))


def clocks(used: str, worker: float) -> dict[str, Any]:
    return {"clocks": {"used": used, "ratio_parent": 7.6, "ratio_worker": worker, "delta": 0.05}}


def slower(**more: Any) -> Run:
    load = more.pop("load", 0.004)
    facts = {key: more.pop(key) for key in ("isolation", "clocks", "disclosed", "replicates") if key in more}
    return run("r_later", comparison(7.6, 6.2, 9.3, **facts), load, **more)


def test_a_loaded_machine_is_no_regression(cli_here: Any, home: Path) -> None:
    """The same file twice, at 0.4 % and at 54 % load: once called a regression."""
    with Store(home) as store:
        store.save_run(quiet(), None)
        store.save_run(slower(load=0.54), None)
    done = cli_here("bench", "compare-runs", "r_quiet", "r_later", "--json")
    result = json.loads(done.stdout)["result"]
    assert (done.returncode, result["outcome"], result["passed"]) == (3, "could_not_judge", False)
    assert result["changes"][0]["verdict"] == "could_not_judge"
    assert "0.4 % → 54 %" in result["sentence"]
    assert result["again"][0]["tool"] == "aisp_run_benchmarks", "the files are the same"
    text = cli_here("bench", "compare-runs", "r_quiet", "r_later").stdout
    assert "aisp bench run ch07:row_sum --preset default" in text
    triage = json.loads(cli_here("bench", "triage", "r_later", "--against", "r_quiet", "--json").stdout)["result"]
    assert (triage["regressed"], len(triage["not_judged"])) == ([], 1)


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (slower(preset="release"), "preset: default → release"),
        (slower(environment={"host": {"cpu": "x", "usable": 4}}), "host.usable: 2 → 4"),
        (slower(environment={"software": {"torch": "2.10"}}), "software.torch: 2.9 → 2.10"),
        (slower(isolation="L1"), "isolation level: L2 → L1"),
        (slower(kind="gate"), "kind of run: bench → gate"),
        (slower(disclosed={"sizes": {"n": 64}}), None),
        (slower(**clocks("lower_bound", 12.0)), "lower bound"),
    ],
)
def test_other_conditions_forbid_a_comparison(later: Run, reason: str | None) -> None:
    answer = run_triage.compared(quiet(), later)
    if reason is None:  # unknown in the earlier run
        assert answer.outcome.value == "failed"
        return
    assert answer.outcome.value == "could_not_judge"
    assert reason in "; ".join(answer.changes[0].reasons)


def test_different_clocks_are_different_conditions() -> None:
    earlier = run("r_quiet", comparison(10.5, 9.4, 11.8, **clocks("worker", 10.5)))
    answer = run_triage.compared(earlier, slower(**clocks("parent", 7.6)))
    assert answer.changes[0].reasons == ["clock: worker → parent"]


def test_equal_conditions_are_judged() -> None:
    answer = run_triage.compared(quiet(), slower(load=0.05))
    assert (answer.outcome.value, answer.changes[0].verdict.value, answer.conditions) == ("failed", "slower", [])


def test_quick_is_compared_with_default_only_on_demand(cli_here: Any, home: Path) -> None:
    with Store(home) as store:
        store.save_run(quiet(), None)
        store.save_run(slower(preset="quick", replicates=1), None)
    plain = json.loads(cli_here("bench", "compare-runs", "r_quiet", "r_later", "--json").stdout)["result"]
    assert plain["changes"][0]["reasons"] == ["preset: default → quick"]
    given = json.loads(cli_here("bench", "compare-runs", "r_quiet", "r_later", "--any-preset", "--json").stdout)[
        "result"
    ]
    assert given["changes"][0]["reasons"] == []
    assert given["changes"][0]["provisional"] is True
    assert given["passed"] is False


@pytest.mark.parametrize("modified", [True, False])
def test_commits_are_measured_again_by_the_gate(modified: bool) -> None:
    def at(commit: str) -> dict[str, Any]:
        return {"commit": {"id": commit, "at": 1.0, "modified": modified}}

    changed = {"sources/ch07-row_sum/candidate.py": "b" * 64}
    earlier = run("r_quiet", comparison(10.5, 9.4, 11.8), environment=at("a" * 40))
    later = slower(load=0.5, environment=at("b" * 40), sources=changed)
    (call,) = run_triage.compared(earlier, later).again
    expected = ("r_quiet", "r_later") if modified else ("a" * 40, "b" * 40)
    assert (call.tool, call.args["base"], call.args["head"]) == ("aisp_benchmark_gate", *expected)


def test_only_what_was_judged_passes() -> None:
    same = run("r_later", comparison(10.5, 10.48, 10.52, noise_floor=0.002))
    earlier = run("r_quiet", comparison(10.5, 10.48, 10.52, noise_floor=0.002))
    passed = run_triage.compared(earlier, same)
    assert (passed.passed, passed.sentence[:8]) == (True, "passed: ")
    other = same.model_copy(update={"comparisons": [same.comparisons[0].model_copy(update={"target": "ch01:x"})]})
    nothing = run_triage.compared(same.model_copy(update={"comparisons": []}), other)
    assert nothing.sentence == "could not judge: the runs have no benchmark in common"
