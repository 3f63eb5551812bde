"""The self-test as a user calls it, and its manifest."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from aisp_mcp.system import manifest
from aisp_mcp.validity import corpus, selftest
from aisp_mcp.validity import selftest as flow
from aisp_mcp.validity.issues import HEADS, issues, page

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
DISCLOSED = [28, 49, 50, 56, 58, 64, 71, 73, 75, 76, 79, 83, 95]


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)["result"]
    return answer


def test_facts_answer_for_what_cannot_be_attacked(cli_here: Cli) -> None:
    """No attack runs: each of the thirteen names what this machine discloses, or why there is nothing to name."""
    numbers = [str(issue.id) for issue in issues() if issue.kind == "R"]
    answer = result(cli_here("bench", "selftest", "--issue", *numbers, "--json"))
    rows = [row for rows in answer["categories"].values() for row in rows]
    assert sorted(row["issue"] for row in rows) == DISCLOSED
    assert {row["finding"] for row in rows} == {"disclosed"}
    assert all(row["why"] for row in rows)
    assert answer["passed"]


def test_facts_of_the_manifest_are_facts_of_a_machine() -> None:
    facts = manifest.manifest()
    for issue in issues():
        assert bool(issue.facts) <= (issue.kind == "R")
        for name in issue.facts:
            head, _, tail = name.partition(".")
            assert head in facts, name
            assert not tail or tail in facts[head], name


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_an_attack_and_its_twin_are_tried_on_this_machine(cli_here: Cli) -> None:
    answer = result(cli_here("bench", "selftest", "--issue", "8", "1", "--device", "cpu", "--json", timeout=110))
    (row,) = answer["categories"]["output"]
    assert (row["finding"], row["case"], row.get("ratio")) == ("stopped", "all_zeros", None)
    assert "incorrect_output" in row["why"]
    assert row["undefended"] > 10
    (skipped,) = answer["categories"]["timing"]
    assert (skipped["finding"], skipped["why"]) == ("skipped", "needs a GPU")
    assert answer["summary"] == {"stopped": 1, "skipped": 1}


def test_an_attack_that_gets_through_fails_the_command(monkeypatch: pytest.MonkeyPatch, ctx: Any) -> None:
    row = {"issue": 8, "kind": "attack", "case": "all_zeros", "found": "through", "ratio": 80.0, "verdict": "faster"}
    monkeypatch.setattr(selftest, "rows_of", lambda cases: iter([{**row, "flags": [], "error": None}]))
    table = flow.run(ctx, flow.chosen([], [8]), ("attack",), ("cpu",), False)
    assert not table.passed
    assert table.summary == {"through": 1}


def test_one_attack_per_issue_and_all_of_them_on_request() -> None:
    cpu = [issue for issue in issues() if issue.attacked and issue.hardware == "C"]
    few = selftest.choose(cpu, ("attack",), ("cpu",), False)
    assert sorted(case.issue for case in few) == [issue.id for issue in cpu]
    assert not any(case.slow for case in few)
    every = selftest.choose(issues(), ("attack", "honest"), ("cpu", "cuda"), True)
    assert sorted(case.name for case in every) == sorted(case.name for case in corpus.cases())


def test_every_issue_with_an_exploit_has_a_page_of_four_paragraphs() -> None:
    assert all(list(page(issue)) == list(HEADS) for issue in issues() if issue.attacked)


@pytest.mark.parametrize(("arguments", "code"), [(["--issue", "999"], 1), (["--category", "nonsense"], 2)])
def test_an_unknown_issue_is_an_error(cli_here: Cli, arguments: list[str], code: int) -> None:
    done = cli_here("bench", "selftest", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
