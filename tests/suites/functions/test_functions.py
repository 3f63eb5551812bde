"""Two functions of one's own, judged: the paths of a new user, through the tools."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analyze_runs import pair as pair_of
from analyze_runs import run_of

from aisp_mcp.judge.functions import identity, pair
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.verdict_row import RunKind, VerdictFilter
from aisp_mcp.suites.functions.forms import FORMS, FormName

SLOW = """
def total(x, k):
    found = x[:, 0] * 0
    for column in range(x.shape[1]):
        found = found + x[:, column] * k
    return found
"""
FAST = "def total(values, factor):\n    return values.sum(1) * factor\n"
NUMPY = """
import numpy as np
from neighbour import ONE

def slow(items, x):
    return np.array([value * ONE for value in x]) + len(items)

def wrong(items, x):
    return x[::-1] * ONE + len(items)
"""

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    context = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    context.run_dir = tmp_path / "home" / "runs" / "test"
    load_catalog(context.settings)
    return context


def verdict(ctx: Context, **args: Any) -> dict[str, Any]:
    from aisp_mcp.runs import tools

    result = tools.aisp_verify_candidate(tools.VerifyParams(preset="quick", **args), ctx)
    (row,) = result.rulings
    return row.model_dump()


@pytest.mark.torch
def test_two_texts_are_judged(ctx: Context, least_quick: None) -> None:
    result = verdict(
        ctx, target=SLOW, candidate=FAST, inputs="x=randn(512, 64), k=randint(1, 9)", name="mine", tag=["a"]
    )
    assert result["verdict"] not in ("incorrect", "invalid")
    assert re.fullmatch(r"mine@[0-9a-f]{6}_text", result["target"])  # two texts of the same form are told apart
    answer = execute("aisp_benchmark_runs", {"tag": "a"}, ctx)
    assert answer.error is None, answer.error
    page = answer.result
    assert isinstance(page, dict)
    assert [(row["name"], row["targets"]) for row in page["runs"]] == [("mine", result["target"])]
    rows, _ = ctx.store.list_verdicts(VerdictFilter(kinds=(RunKind.FUNCTIONS,)))
    assert [row.target.partition("@")[0] for row in rows] == ["mine"]


HELPED = """
import math
STEP = 2

def helper(x):
    return x * STEP

def unused(x):
    return 1

def total(x):
    '''Doubled.'''
    return helper(x) + math.pi  # a comment
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("  # a comment", "", True),
        ("    '''Doubled.'''\n", "", True),
        ("return 1", "return 2", True),
        ("STEP = 2", "STEP = 3", False),
        ("x * STEP", "STEP * x", False),
        ("import math", "import cmath as math", False),
    ],
)
def test_a_target_is_the_baseline_and_what_it_uses(old: str, new: str, same: bool) -> None:
    assert old in HELPED
    first, second = (identity.of_baseline(text, "total") for text in (HELPED, HELPED.replace(old, new)))
    assert (first == second) is same


def test_a_name_joins_inputs_and_separates_targets() -> None:
    known = {
        identity.of_target("text:f", "b", "x=randn(4)"),
        identity.of_target("text:f", "b", "x=randn( 4 )"),
        identity.of_target("text:f", "b", "x=randn(5)"),
        identity.of_target("text:f", "b", "x=randn(4)", "mine"),
        identity.of_target("a:f", "b", "x=randn(5)", "mine"),
        identity.of_target("a:f", "other", "x=randn(5)", "mine"),
    }
    assert sorted(name.partition("@")[0] for name in known) == ["mine", "mine", "text:f", "text:f"]


@pytest.mark.torch
def test_numpy_functions_with_a_neighbouring_module(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NUMPY)
    (tmp_path / "neighbour.py").write_text("ONE = 1.0\n")
    names = {"target": f"{tmp_path}/mine.py:slow", "candidate": f"{tmp_path}/mine.py:wrong"}
    assert verdict(ctx, **names, inputs="items=list(randint(0, 9, 5)), x=randn(200)")["verdict"] == "incorrect"


def test_a_new_pair_can_be_found(cli_here: Any, tmp_path: Path) -> None:
    assert "aisp bench run --targets mine:mine" in cli_here("bench", "new", "mine", cwd=tmp_path).stdout
    listed = cli_here("bench", "list-targets", "--query", "mine:mine", "--json", cwd=tmp_path)
    assert '"mine:mine"' in listed.stdout
    assert "ch07" in cli_here("bench", "list-chapters", cwd=tmp_path).stdout  # the shipped suites stay visible
    again = cli_here("bench", "new", "Mine!", cwd=tmp_path)
    assert (again.returncode, "EXISTS" in again.stderr) == (1, True)


@pytest.mark.parametrize("like", FORMS)
def test_a_new_pair_has_the_form_of_ones_code(ctx: Context, like: FormName) -> None:
    answer = execute("aisp_benchmark_new", {"name": "My pair 2", "like": like}, ctx)
    assert answer.error is None, answer.error
    assert isinstance(answer.result, dict)
    texts = [Path(file["path"]).read_text() for file in answer.result["files"]]
    assert not any(("NAME" in text and "optimized_my" not in text) or "TITLE" in text for text in texts)
    assert "my_pair_2" in answer.result["command"]
    if inputs := FORMS[like].inputs:
        pair.plan(pair.Request(*(file["path"] for file in answer.result["files"]), inputs))
        first, second = (runpy.run_path(file["path"])["my_pair_2"] for file in answer.result["files"])
        values: Any = list(range(97, 123)) if like == "text" else [float(number) for number in range(60)]
        values = np.array(values) if like == "numpy" else values
        assert list(first(values)) == pytest.approx(list(second(values)))


def test_ones_own_targets_come_first_then_the_measured_and_each_says_whether_it_runs(
    cli_here: Any, tmp_path: Path
) -> None:
    assert cli_here("bench", "new", "zebra", cwd=tmp_path).returncode == 0
    listed = json.loads(cli_here("bench", "list-targets", "--json", cwd=tmp_path).stdout)["result"]["targets"]
    assert [row["name"] for row in listed[:2]] == ["zebra:zebra", "ch01:autograd_recording"]
    assert listed[0]["runs_here"] == "yes"
    found = json.loads(cli_here("bench", "list-targets", "--query", "ch06:scale_rows", "--json", cwd=tmp_path).stdout)
    assert found["result"]["targets"][0]["runs_here"] in ("yes", "no: a GPU")


def test_measured_targets_come_before_others(ctx: Context) -> None:
    ctx.store.save_run(run_of(pair_of(target="ch07:row_sum")), None)
    first, second = execute("aisp_benchmark_targets", {"bench_root": [str(BENCHMARKS)]}, ctx).result["targets"][:2]  # type: ignore[index]
    assert (first["name"], first["measured"]) == ("ch07:row_sum", "faster 2.00x")
    assert (second["name"], second["measured"]) == ("ch01:autograd_recording", None)


def test_a_file_as_a_target_is_told_the_three_ways(cli_here: Any, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("def f(x):\n    return x\n")
    shown = cli_here("bench", "run", "--targets", "slow.py", "--dry-run", cwd=tmp_path).stderr
    for step in ("aisp bench adapt slow.py", "aisp bench verify slow.py fast.py", "aisp bench new slow"):
        assert f"try: {step}" in shown


def test_an_unknown_target_points_to_functions_of_ones_own(cli_here: Any) -> None:
    done = cli_here("bench", "run", "--targets", "ch07:row_sun", "--dry-run")
    assert done.returncode == 1
    assert "aisp bench verify slow.py fast.py --inputs 'x=randn(4096,64)'" in done.stderr
