"""The examples do what their page says, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_are_found_without_problems(cli_here: Any) -> None:
    answer = json.loads(cli_here("bench", "list-targets", "--bench-root", str(ROOT / "examples"), "--json").stdout)
    (target,) = answer["result"]["targets"]
    assert target["variants"] == ["softmax:rows_cached", "softmax:rows_fused", "softmax:rows_half"]
    assert target["problems"] == []


@pytest.mark.slow
@pytest.mark.torch
def test_both_cheats_are_incorrect_and_the_honest_one_is_not(cli: Any) -> None:
    targets = ("--targets", "softmax:rows", "--preset", "quick", "--json")
    done = cli("bench", "run", "--bench-root", str(ROOT / "examples"), *targets, timeout=50)
    rulings = {row["target"]: row["verdict"] for row in json.loads(done.stdout)["result"]["rulings"]}
    assert (rulings["softmax:rows_half"], rulings["softmax:rows_cached"]) == ("incorrect", "incorrect")
    assert rulings["softmax:rows_fused"] in ("faster", "inconclusive")
