"""Tasks and solvers in the form of AlgoTune: found, left out with the reason, and measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.suites.adapters import algotune, formats

TASK = """
import random
{imports}
from AlgoTuneTasks.base import Task, register_task


@register_task("{name}")
class Distinct(Task):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.limit = 8  # times n, so that inputs differ in their distinct items at every size

    def generate_problem(self, n: int, random_seed: int = 1):
        draw = random.Random(random_seed)
        items = [draw.randrange(self.limit * n) for _ in range(8 * n)]
        random.shuffle(items)  # from the global state
        return (items, n)

    def solve(self, problem):
        found = []
        for item in problem[0]:
            if item not in found:
                found.append(item)
        return {{"items": sorted(found)}}

    def is_solution(self, problem, solution) -> bool:
        return isinstance(solution, dict) and solution.get("items") == sorted(set(problem[0]))
"""
FAST = """
from helper import unique


class Solver:
    def solve(self, problem, **kwargs):
        return {"items": unique(problem[0])}
"""
HELPER = "def unique(items):\n    return sorted(set(items))\n"
WRONG = """
class Solver:
    def solve(self, problem, **kwargs):
        return {"items": sorted(set(problem[0]))[1:]}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A repository of two tasks, one of which needs a package, with solvers of two models for each."""
    for name, imports in (("distinct", ""), ("absent", "import no_such_package")):
        task = tmp_path / "AlgoTuneTasks" / name / f"{name}.py"
        task.parent.mkdir(parents=True)
        task.write_text(TASK.format(name=name, imports=imports))
        for model, text in (("Right 1.5", FAST), ("Wrong", WRONG)):
            folder = tmp_path / "results" / model / name
            folder.mkdir(parents=True)
            (folder / "solver.py").write_text(text)
            (folder / "helper.py").write_text(HELPER)
    own = TASK.format(name="base", imports="").replace("Distinct(Task)", "Task")
    (tmp_path / "AlgoTuneTasks" / "base.py").write_text(own)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "generation.json").write_text('{"distinct": {"n": 50}}')
    return tmp_path


def test_solvers_are_those_below_the_path_and_sizes_the_published_ones(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {problem.name: problem for problem in formats.find(suite, None, [], {})}
    assert [*found] == ["absent", "distinct"]
    assert [*found["distinct"].candidates] == ["right_1_5", "wrong"]
    assert (found["distinct"].reference["n"], found["absent"].reference["n"]) == (50, algotune.N)
    (absent, distinct) = formats.find(suite / "results" / "Wrong", "algotune", [], {"n": 9})
    assert ([*absent.candidates], [*distinct.candidates]) == (["wrong"], ["wrong"])
    assert distinct.reference["n"] == 9
    assert [found["distinct"].reference["grows"], distinct.reference["grows"]] == [False, True]
    assert formats.recognised(str(suite / "AlgoTuneTasks" / "distinct" / "distinct.py")) == "algotune"
    monkeypatch.chdir(suite)
    (suite / "AlgoTuneTasks" / "distinct" / "solver.py").write_text(FAST)
    (beside,) = formats.find(Path("AlgoTuneTasks/distinct"), None, [], {})
    assert [*beside.candidates] == ["solver"]
    with pytest.raises(UsageError, match="only size"):
        formats.find(suite, "algotune", [], {"rows": 9})


@pytest.mark.usefixtures("least_quick")
def test_solvers_are_judged_by_the_checker_of_their_task(cli_here: Any, suite: Path) -> None:
    source = f"algotune:{suite}"
    done = cli_here("bench", "run", "--from", source, "--preset", "quick", "--json")
    answer = json.loads(done.stdout)["result"]
    verdicts = {re.sub("@[0-9a-f]{6}", "", row["target"]): row["verdict"] for row in answer["rulings"]}
    assert verdicts.pop("distinct:solve_wrong", answer.get("failed")) == "incorrect"
    assert verdicts["distinct:solve_right_1_5"] not in ("incorrect", "invalid"), answer
    assert [(row["target"], row["code"]) for row in answer["skipped"]] == [("algotune:absent", "NEEDS")]
    assert "no_such_package" in answer["skipped"][0]["missing"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--tolerance", "problem"), "NO_TOLERANCE"),
        (("--recipe", "*"), "NO_INPUT"),
        (("--forbid", "problem"), "NO_POLICY"),
    ],
)
def test_options_without_effect_are_refused(cli_here: Any, suite: Path, words: tuple[str, ...], code: str) -> None:
    folder = suite / "AlgoTuneTasks" / "distinct"
    solver = suite / "results" / "Wrong" / "distinct" / "solver.py"
    done = cli_here("bench", "verify", str(folder), str(solver), *words, "--json")
    assert json.loads(done.stdout)["error"]["code"] == code


def test_a_folder_of_pairs_is_refused_with_the_other_command(cli_here: Any, suite: Path) -> None:
    done = cli_here("bench", "adapt", str(suite), "--to", str(suite / "out"), "--allow-write", str(suite), "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], "--from algotune:" in error["hint"]) == ("NO_PAIRS", True)
