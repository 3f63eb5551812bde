"""Every export shows what a reader must not overlook: a lower bound, and a verdict that rests on one replicate."""

from __future__ import annotations

import csv
import io

import pytest
from export_runs import comparison, run_of

from aisp_mcp.judge.records.measurement import Clocks
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import badge, comment, html, junit, markdown, outcomes, tables
from aisp_mcp.store.records.run import Run

BOUND = Clocks(used="lower_bound", ratio_parent=2.0, ratio_worker=3.0, delta=0.05)


@pytest.fixture
def bound() -> Run:
    return run_of(comparison("ch01:a", 2.0, Verdict.FASTER, clocks=BOUND))


@pytest.fixture
def quick() -> Run:
    return run_of(comparison("ch01:a", 2.0, Verdict.FASTER, replicates=1), preset="quick")


def files(run: Run) -> dict[str, str]:
    rows = outcomes.of_run(run)
    made = {
        "junit": junit.to_junit(rows, "run", run.created_at, run.seconds, {}),
        "comment": comment.run_comment(run).encode(),
        "markdown": markdown.to_markdown(run),
        "html": html.to_html(run),
    }
    return {name: data.decode() for name, data in made.items()}


def test_a_lower_bound_says_at_least(bound: Run) -> None:
    for name, text in files(bound).items():
        assert "at least 2" in text, name
    (row,) = csv.DictReader(io.StringIO(tables.to_csv(bound).decode()))
    assert row["at_least"] == "True"
    exact = run_of(comparison("ch01:a", 2.0, Verdict.FASTER))
    for name, text in files(exact).items():
        assert "at least" not in text, name


def test_one_replicate_is_provisional_and_passes_nothing(quick: Run) -> None:
    for name, text in files(quick).items():
        assert "provisional" in text.replace(".verdict.provisional", ""), name
    assert '<skipped message="provisional: ' in files(quick)["junit"]
    assert "1 not judged" in badge.message(outcomes.of_run(quick))
    assert badge.colour(outcomes.of_run(quick)) == badge.GREY
    (row,) = csv.DictReader(io.StringIO(tables.to_csv(quick).decode()))
    assert row["provisional"] == "True"


def test_one_replicate_is_enough_for_a_wrong_output() -> None:
    (row,) = outcomes.of_run(run_of(comparison("ch01:a", None, Verdict.INCORRECT, replicates=1), preset="quick"))
    assert (row.state, row.provisional) == (outcomes.State.FAILED, False)


def test_a_gate_names_both_commits() -> None:
    commits = {"base": "b" * 40, "head": "c" * 40}
    run = run_of(comparison("ch01:a", 0.5, Verdict.SLOWER), environment={"commits": commits}, kind="gate")
    for name in ("markdown", "html"):
        assert f"commit {'b' * 40} against {'c' * 40}" in files(run)[name], name
