"""Inputs that stay with the recipe because the problem's outputs grow without bound on any others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("recorded_here")
# With numbers of the recipe's size the product stays below 1e6; with some times that, it passes 1e20.
GROWING = kernelbench.problem(
    "Growth.",
    "return torch.exp(torch.cumsum(24 * x, dim=1)) + y[:, :1]",
    "torch.randn(32, 64) * 0.02, torch.randn(32, 64)",
    arguments="x, y",
)


# Keys of the recipe's size shrink the state; those of twice that size let it grow from step to step. About 0.2 s.
RECURRENT = kernelbench.problem(
    "A delta rule.",
    "state = torch.zeros(32, 8)\n        for row, value in zip(k, v):\n"
    "            state = state - torch.outer(row, row @ state - value)\n        return state",
    "torch.randn(512, 32) * 0.11, torch.randn(512, 8)",
    arguments="k, v",
)


def test_an_input_with_which_a_recurrence_grows_is_left_to_the_recipe(cli_here: Any, tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"recurrent": RECURRENT})
    done = cli_here("bench", "adapt", str(folder / "recurrent.py"), "--to", str(tmp_path / "out"), "--json")
    (problem,) = json.loads(done.stdout)["result"]["problems"]
    assert {each["name"]: each["how"] for each in problem["inputs"]} == {"k": "recipe", "v": "normal"}


def test_an_input_that_would_overflow_is_left_to_the_recipe(cli_here: Any, tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"growing": GROWING})
    done = cli_here("bench", "adapt", str(folder / "growing.py"), "--to", str(tmp_path / "out"), "--json")
    (problem,) = json.loads(done.stdout)["result"]["problems"]
    assert {each["name"]: each["how"] for each in problem["inputs"]} == {"x": "recipe", "y": "normal"}
    assert "with other statistics the outputs grow without bound: x" in problem["disclosed"]


@pytest.mark.slow
def test_inputs_that_only_grow_together_are_told_from_the_others(cli_here: Any, tmp_path: Path) -> None:
    powers = "torch.exp(torch.cumsum(24 * x, dim=1)) + torch.exp(torch.cumsum(24 * y, dim=1))"
    growing = kernelbench.problem(
        "Growth of two.",
        f"return {powers} + z",
        "torch.randn(32, 64), torch.randn(32, 64) * 0.02, torch.randn(32, 64) * 0.02",
        arguments="z, x, y",
    )
    folder = support.write(tmp_path / "in", {"growing": growing})
    done = cli_here("bench", "adapt", str(folder / "growing.py"), "--to", str(tmp_path / "out"), "--json")
    (problem,) = json.loads(done.stdout)["result"]["problems"]
    assert {each["name"]: each["how"] for each in problem["inputs"]} == {"z": "normal", "x": "recipe", "y": "recipe"}


@pytest.mark.parametrize("draw", ["torch.randn(32, 64)", "torch.randn(4096, 20)"])  # by chance, spreads differ fourfold
def test_an_ordinary_problem_leaves_no_input_to_the_recipe(draw: str, cli_here: Any, tmp_path: Path) -> None:
    plain = kernelbench.problem("Sum.", "return (x * x).sum(dim=1)", draw)
    folder = support.write(tmp_path / "in", {"plain": plain})
    done = cli_here("bench", "adapt", str(folder / "plain.py"), "--to", str(tmp_path / "out"), "--json")
    (problem,) = json.loads(done.stdout)["result"]["problems"]
    assert [each["how"] for each in problem["inputs"]] == ["normal"]
