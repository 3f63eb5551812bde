"""The language of --inputs, through aisp_verify_candidate's dry run: it is parsed and never evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge.functions import inputs, pair
from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings

SLOW = "def total(x, k=1):\n    return x.sum() * k\n"
FAST = "def total(x, k=1):\n    return k * x.sum()\n"


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    context = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    load_catalog(context.settings)
    return context


def refusal(ctx: Context, baseline: str = SLOW, candidate: str = FAST, **args: Any) -> tuple[str, str]:
    """Code and text of the error of a dry run; two empty texts where there is none."""
    call = {"target": baseline, "candidate": candidate, "dry_run": True, **args}
    error = execute("aisp_verify_candidate", call, ctx).error
    return ("", "") if error is None else (error.code, f"{error.message} {error.hint}")


@pytest.mark.parametrize(
    "text",
    [
        "x=randn(64, 8)",
        "randn(64), 3",
        "n=64, x=randn(n, 2*n, dtype=float16), k=randint(1, 10)",
        "x=np.random.randn(32), k=2**4",
        "x=list(randint(0, 100, 50))",
        "x=torch.randint(100, (8, 8), dtype=torch.int32), k=-1.5",
        'x={"a": rand(3), "b": [randn(2), 1]}, k="text"',
        "x=full((2, 3), 0.5), k=rand()",
        "x=uniform(-1, 1, 8, device=cpu, in_place=True)",
        "n=64, x=randn(n), k=arange(0, n, 20)",
        "n=64, x=2*rand(n)/n-1, k=-randint(1, 9)",
        "x=list(randn(8, 2)*0.1), k=np.random.normal(size=8)",
    ],
)
def test_inputs_as_in_a_call(ctx: Context, text: str) -> None:
    assert refusal(ctx, inputs=text) == ("", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('x=__import__("os").system("id")', "makers"),
        ("x=open('/etc/passwd')", "open"),
        ("x=randn.__globals__", "not a number"),
        ("x=randn(4).half()", "dtype=float16"),
        ("x=rand(4) > 0.5", "multiplied and divided by a number: 2 * rand(4096) - 1"),
        ("x=rand(4) * rand(4)", "--make gen.py:make"),
        ("x=2 / rand(4)", "cannot be computed"),
        ("x=rand(4) / 0", "divided by 0"),
        ("x=text(4) * 2", "Only numbers"),
        ("x=randn", "randn(…)"),
        ("x=[i for i in ()]", "not a number"),
        ("x=lambda: 1", "not a number"),
        ("x=9**9**9", "power"),
        ("x=randn(2**40)", "elements"),
        ("x=randn(1", "parsed"),
        ("1) + f(2", "not a list"),
        ("**{}", "unpacked"),
        ("x=randm(3)", "'random'"),
        ("x=randn(n)", "'n'"),
        ("x=randn(4, dtype=float12)", "float12"),
        ("x=np.randn(4, dtype=bfloat16)", "bfloat16"),
        ("x=randn(0)", "integers"),
        ("x=randn(4), k=arange(4, 4)", "some lie between"),
        ("x=randn(4), k=arange(0, 9, 3, 2)", "unexpected further number"),
        ("y=randn(4)", "It takes x, k"),
        ("k=3", "needs x"),
        ("x=" + "[" * 3000, "parsed"),
    ],
)
def test_what_is_refused_and_why(ctx: Context, text: str, said: str) -> None:
    code, message = refusal(ctx, inputs=text)
    assert code == "BAD_INPUTS"
    assert said in message


def test_functions_without_inputs_are_told_what_to_write(ctx: Context) -> None:
    code, message = refusal(ctx)
    assert code == "NO_INPUTS"
    assert '--inputs "x=list(rand(1000))"' in message  # the file imports neither numpy nor torch
    assert "randn(4096,64) for tensors" in message
    code, message = refusal(ctx, inputs="x='abc', k=4")
    assert code == "NO_INPUTS"
    assert '--inputs "x=text(8), k=randint(0, 1000)"; or write a generator' in message


def test_the_choice_of_a_function(ctx: Context, tmp_path: Path) -> None:
    several = tmp_path / "several.py"
    several.write_text("def a(x):\n    return x\n\ndef b(x):\n    return x\n\ndef _c(x):\n    return x\n")
    one = tmp_path / "one.py"
    one.write_text("def b(x):\n    return x\n")
    names = {"inputs": "x=randn(4)"}
    assert refusal(ctx, str(several), str(one), **names) == ("", "")  # both define b
    assert refusal(ctx, f"{several}:a", f"{several}:_c", **names) == ("", "")
    code, message = refusal(ctx, str(several), str(several), **names)
    assert code == "AMBIGUOUS_FUNCTION"
    assert "several.py:a, several.py:b" in message
    assert refusal(ctx, f"{several}:d", str(one), **names)[0] == "NO_FUNCTION"
    assert refusal(ctx, str(tmp_path / "none.py"), str(one), **names)[0] == "NO_FUNCTION"


def test_an_example_of_inputs_follows_the_annotations(ctx: Context, tmp_path: Path) -> None:
    words = tmp_path / "words.py"
    words.write_text("def shared(first: str, least: int, weights: list, rest):\n    return 0\n")
    code, message = refusal(ctx, str(words), str(words))
    assert code == "NO_INPUTS"
    example = "first=text(8), least=randint(0, 1000), weights=list(rand(1000)), rest=list(rand(1000))"
    assert f'--inputs "{example}"' in message


def test_a_file_without_a_function_is_told_what_to_write(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("def nearest(points, k=2):\n    return points\n")
    (tmp_path / "imports.py").write_text("from math import ceil, floor, sqrt\n")
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv)\n")
    code, message = refusal(ctx, str(tmp_path / "slow.py"), str(tmp_path / "imports.py"), inputs="points=randn(4)")
    assert code == "NO_FUNCTION"
    assert "imports.py defines no function; it imports 3." in message
    assert "`def nearest(points, k=2): …`, or name one of imports.py:ceil, imports.py:floor" in message
    code, message = refusal(ctx, str(tmp_path / "slow.py"), str(tmp_path / "script.py"), inputs="points=randn(4)")
    assert code == "NO_FUNCTION"
    assert "script.py defines no function." in message
    assert "`def nearest(points, k=2): …`." in message


@pytest.mark.parametrize(
    ("first", "form"),
    [("import pandas as pd", "as_array(x)"), ("import scipy.linalg", "as_array(x)"), ("import numpy, torch", "=x)")],
)
def test_libraries_of_arrays_get_arrays(first: str, form: str, tmp_path: Path) -> None:
    plan = pair.plan(Request(f"{first}\n\n{SLOW}", FAST, "x=randn(64)"))
    assert form in pair.write(plan, tmp_path).baseline.read_text()


def test_sizes_have_names_and_can_be_replaced() -> None:
    by_name = inputs.read("n=64, m=2*n, x=randn(n, m), k=n", replaced={"n": 128})
    assert inputs.sizes(by_name) == {"n": 128, "m": 256}
    assert by_name[3].text == "128"


@pytest.mark.parametrize(
    ("text", "drawn", "passed"),
    [
        ("x=-randn(4)/2", "((rng.randn(4)) * (-1)) / 2", "x"),
        ("x=list(2*rand(4)-1)", '(2 * (rng.rand(4, dtype="float64") * 0.5 + 0.5)) - 1', "as_list(x)"),
        ("x=np.randint(0, 9, 4)*0.5", "(rng.randint(0, 9, 4, any_values=True)).double() * 0.5", "as_array(x)"),
        ("x=2*bernoulli(0.5, 4)-1", "(2 * (rng.bernoulli(0.5, 4, any_values=True)).long()) - 1", "x"),
        ("x=randint(1, 9)*2", "(rng.randint(1, 9, 1, any_values=True)) * 2", "int(x)"),
        ("x=randint(1, 9)/4", "(rng.randint(1, 9, 1, any_values=True)).double() / 4", "float(x)"),
    ],
)
def test_makers_are_computed_with_numbers(text: str, drawn: str, passed: str) -> None:
    (argument,) = inputs.read(text)
    assert (argument.draws["x"].source, argument.text) == (drawn, passed)


def test_a_specification_is_not_taken_for_a_function(ctx: Context, tmp_path: Path) -> None:
    text = "from aisp_mcp.bench import Benchmark\n\n\nclass Rows(Benchmark):\n    pass\n"
    (tmp_path / "baseline_rows.py").write_text(text)
    (tmp_path / "fast.py").write_text("def run(x):\n    return x\n")
    code, message = refusal(ctx, str(tmp_path / "baseline_rows.py"), str(tmp_path / "fast.py"), inputs="x=randn(4)")
    assert code == "SPECIFICATION"
    assert "--targets '*:rows'" in message


LOOP = "def total(x, k=1):\n    return sum(v * k for v in x)\n"


@pytest.mark.parametrize(
    ("baseline", "first", "form"),
    [
        (SLOW, "import numpy as np", "as_array(x)"),
        (SLOW, "import math", "=x)"),
        (LOOP, "import math", "as_array(x)"),
        (LOOP, "import torch", "=x)"),
    ],
)
def test_plain_python_gets_what_the_candidate_takes(baseline: str, first: str, form: str, tmp_path: Path) -> None:
    plan = pair.plan(Request(baseline, f"{first}\n\n{FAST}", "x=randn(64)"))
    assert form in pair.write(plan, tmp_path).baseline.read_text()
    assert bool(plan.chosen_by_candidate) == ("np" in first or "torch" in first)
