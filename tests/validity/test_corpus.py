"""The corpus itself: manifest and files agree, cases are complete, and the judge can say each of its words."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.native import launch_header
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import HEADS, Case, Outcome, Undefended, cases, issues, page

ROWS = issues()
CATEGORIES = {
    "timing": 7,
    "output": 10,
    "workload": 11,
    "location": 7,
    "memory": 7,
    "cuda": 10,
    "compile": 7,
    "distributed": 8,
    "environment": 12,
    "statistical": 8,
    "evaluation": 8,
}
ATTACK = Case("some_attack", "attack", baseline="", candidate="")
HONEST = Case("some_twin", "honest", baseline="", candidate="")
NAMES = {case.name for case in corpus.cases()}


def test_the_manifest_has_all_issues_in_their_categories() -> None:
    """The first ninety-five are those that others list, too; what comes later is ours."""
    assert [row.id for row in ROWS] == list(range(1, len(ROWS) + 1))
    listed = ROWS[:95]
    assert {name: sum(row.category == name for row in listed) for name in CATEGORIES} == CATEGORIES
    assert {row.category for row in ROWS} == set(CATEGORIES)
    classes = "".join(row.kind for row in listed)
    assert {letter: classes.count(letter) for letter in "BDNR"} == {"B": 44, "D": 25, "N": 13, "R": 13}


def test_every_issue_has_attacks_or_a_reason() -> None:
    attacked = {case.issue for case in corpus.cases()}
    assert attacked == {row.id for row in ROWS if row.attacked}
    assert attacked == {row.id for row in ROWS if not row.reason}
    assert len({row.title for row in ROWS}) == len(ROWS)


def test_the_cases_of_a_module_are_of_its_issue() -> None:
    categories = {row.id: row.category for row in ROWS}
    assert all(categories[case.issue] == category for category, case in cases())


def test_every_issue_with_attacks_has_its_page() -> None:
    assert all(list(page(row)) == list(HEADS) for row in ROWS if row.attacked)


def test_every_issue_with_an_attack_has_an_honest_twin() -> None:
    kinds: dict[int, set[str]] = {}
    for case in corpus.cases():
        kinds.setdefault(case.issue, set()).add(case.kind)
    assert {issue for issue, tried_kinds in kinds.items() if tried_kinds != {"attack", "honest"}} == set()


def test_there_are_enough_of_them() -> None:
    attacks = corpus.cases(kind="attack", device="cpu")
    categories = {row.id: row.category for row in ROWS}
    assert len(attacks) >= 51
    assert len({categories[case.issue] for case in attacks}) >= 8
    assert len(corpus.cases(kind="honest", device="cpu")) >= 25


@pytest.mark.parametrize("case", corpus.cases(), ids=lambda case: case.name)
def test_a_case_is_two_files_that_can_be_read(case: Case, tmp_path: Path) -> None:
    pair = corpus.write(case, tmp_path)
    ast.parse(pair.baseline.read_text("utf-8"))
    text = pair.path.read_text("utf-8")
    if case.suffix == ".py":
        ast.parse(text)
        assert "run" in text or "serve" in text
    else:
        assert launch_header.read(text, case.suffix).function in text
    assert case.name == case.name.lower()


def test_names_are_used_once() -> None:
    names = [case.name for case in corpus.cases()]
    assert len(names) == len(set(names))


def comparison(verdict: str, ratio: float = 1.0, low: float = 0.9, *codes: str) -> dict[str, Any]:
    flags = [{"code": code, "message": "", "severity": "warn"} for code in codes]
    return {"verdict": verdict, "ratio": ratio, "interval": {"low": low, "high": 2 * ratio}, "flags": flags}


@pytest.mark.parametrize(
    ("case", "outcome", "finding"),
    [
        (ATTACK, comparison("invalid"), "stopped"),
        (ATTACK, comparison("incorrect"), "stopped"),
        (ATTACK, comparison("faster", 100.0, 90.0, "clock_disagreement"), "stopped"),
        (ATTACK, comparison("same", 1.01), "stopped"),
        (ATTACK, comparison("inconclusive", 1.2, 0.8), "stopped"),
        (ATTACK, comparison("faster", 1.2, 1.1), "through"),
        (ATTACK, comparison("faster", 1.06, 1.01), "through"),
        (ATTACK, comparison("faster", 1.04, 1.03), "stopped"),
        (ATTACK, comparison("inconclusive", 300.0, 0.1), "through"),
        (ATTACK, comparison("faster", 100.0, 90.0, "parent_coarse"), "through"),
        (HONEST, comparison("faster", 3.0, 2.9), "passed"),
        (HONEST, comparison("slower", 0.1), "passed"),
        (HONEST, comparison("invalid"), "flagged wrongly"),
        (HONEST, comparison("incorrect"), "flagged wrongly"),
        (ATTACK, None, "lost"),
        (HONEST, None, "lost"),
    ],
)
def test_the_judge_says_each_word(case: Case, outcome: dict[str, Any] | None, finding: str) -> None:
    assert corpus.judge(case, Outcome(case.name, comparison=outcome, error=None if outcome else "ended")) == finding


def test_a_missing_device_is_a_skip_and_no_pass() -> None:
    assert corpus.judge(ATTACK, Outcome("some_attack", skipped="a GPU")) == "skipped"


DATA = Path(__file__).resolve().parents[2] / "results"
RECORDED = {"cpu": "cpu-attacks.json", "H200": "h200-attacks.json", "2xH200": "2xh200-attacks.json"}


def kept(name: str) -> dict[str, Any]:
    """A recorded run; no rows where it has not been made."""
    path = DATA / name
    return json.loads(path.read_text("utf-8")) if path.exists() else {"rows": []}


def recorded(name: str) -> list[dict[str, Any]]:
    """Its rows."""
    return list(kept(name)["rows"])


@pytest.mark.parametrize("device", RECORDED)
def test_executed_means_recorded(device: str) -> None:
    """An issue is called executed where a kept run shows one of its attacks stopped, and nowhere else."""
    stopped = {
        row["issue"] for row in recorded(RECORDED[device]) if (row["kind"], row["found"]) == ("attack", "stopped")
    }
    assert {row.id for row in ROWS if device in row.executed_on} == stopped


@pytest.mark.parametrize("device", RECORDED)
def test_recorded_runs_are_of_cases_that_exist_and_what_got_through_is_explained(device: str) -> None:
    rows = recorded(RECORDED[device])
    assert {row["case"] for row in rows} <= {case.name for case in corpus.cases()}
    bad = {row["case"] for row in rows if row["found"] in corpus.BAD}
    assert bad == set(kept(RECORDED[device]).get("open", {}))
    assert {device for row in ROWS for device in row.executed_on} <= set(RECORDED)


UNDEFENDED = {
    "cpu": "cpu-attacks-undefended.json",
    "H200": "h200-attacks-undefended.json",
    "2xH200": "2xh200-attacks-undefended.json",
}
A_GAIN = 1.05


def gains() -> dict[int, tuple[float, str, str]]:
    """Issue to (gain, harness, device) of its best attack, undefended; of each attack the last run counts."""
    last = {
        (device, row["case"]): row
        for device, name in UNDEFENDED.items()
        for run in json.loads((DATA / name).read_text("utf-8"))["runs"]
        for row in run["rows"]
    }
    best: dict[int, tuple[float, str, str]] = {}
    for (device, case), row in last.items():
        if row["gain"] and case in NAMES:
            best[row["issue"]] = max(best.get(row["issue"], (0.0, "", "")), (row["gain"], row["harness"], device))
    return best


def test_every_issue_with_an_attack_names_its_gain_or_why_there_is_none() -> None:
    """The gain is that of the recorded runs, and nothing that was recorded is explained away."""
    recorded = gains()
    for row in ROWS:
        best, undefended = recorded.get(row.id, (0.0, "", "")), row.undefended
        if not row.attacked:
            assert undefended == Undefended(), row.id
        elif undefended.gain is not None:
            assert (undefended.gain, undefended.harness, undefended.device) == best, row.id
            assert best[0] >= A_GAIN, row.id
        else:
            assert undefended.why.endswith("."), row.id
            assert best[0] < A_GAIN, row.id
