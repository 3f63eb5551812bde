"""Two modules that do the same in other words have one fingerprint; other programs have another."""

from __future__ import annotations

import pytest

from aisp_mcp.optimize.workspace import fingerprint

FIRST = """
import torch

SCALE = 2.0

def halve(value, count):
    total = value / count
    return total

def run(a, b):
    rows = [halve(row, 2) for row in a]
    for index, row in enumerate(rows):
        rows[index] = row * SCALE + b
    return torch.stack(rows)
"""
SAME = {
    "comment": FIRST.replace("    total =", "    # half\n    total ="),
    "docstring": FIRST.replace("def run(a, b):\n", 'def run(a, b):\n    """All rows."""\n'),
    "alias": FIRST.replace("import torch", "import torch as t").replace("torch.stack", "t.stack"),
    "from import": FIRST.replace("import torch", "from torch import stack as s").replace("torch.stack", "s"),
    "renamed locals": FIRST.replace("rows", "pieces").replace("index", "i").replace("total", "x").replace("count", "n"),
    "renamed helper": FIRST.replace("halve", "part").replace("SCALE", "TWO"),
    "annotations": FIRST.replace("def halve(value, count):", "def halve(value: object, count: int) -> object:"),
    "reordered functions": "import torch\n\n" + FIRST[FIRST.index("def run") :] + "SCALE = 2.0\n"
    + FIRST[FIRST.index("def halve") : FIRST.index("def run")],
    "dead function": FIRST + "\n\ndef unused(a):\n    return a * 3\n",
    "dead constant": FIRST.replace("SCALE =", "OTHER = 7\nSCALE ="),
    "dead branch": FIRST.replace("    return total", "    if False:\n        total = total + 1\n    return total"),
    "code after return": FIRST.replace("    return total\n", "    return total\n    print(total)\n"),
    "unused local": FIRST.replace("    total =", "    version = 3\n    total ="),
    "pass": FIRST.replace("    total =", "    pass\n    total ="),
}  # fmt: skip
OTHER = {
    "another constant": FIRST.replace("2.0", "2.5"),
    "another operation": FIRST.replace("value / count", "value * count"),
    "swapped arguments": FIRST.replace("value / count", "count / value"),
    "another function": FIRST.replace("torch.stack", "torch.cat"),
    "another argument": FIRST.replace("halve(row, 2)", "halve(row, 3)"),
    "a decorator": FIRST.replace("def run", "@torch.compile\ndef run"),
    "a setting": FIRST.replace("SCALE =", "torch.set_num_threads(1)\nSCALE ="),
    "an attribute": FIRST.replace("row * SCALE", "row.T * SCALE"),
    "another local": FIRST.replace("row * SCALE", "rows[0] * SCALE"),
    "a keyword": FIRST.replace("torch.stack(rows)", "torch.stack(rows, dim=1)"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_in_other_words_is_a_duplicate(name: str) -> None:
    assert SAME[name] != FIRST
    assert fingerprint(SAME[name]) == fingerprint(FIRST)


@pytest.mark.parametrize("name", OTHER)
def test_another_program_is_not(name: str) -> None:
    assert OTHER[name] != FIRST
    assert fingerprint(OTHER[name]) != fingerprint(FIRST)


def test_parameters_that_are_named_in_calls_stay_apart() -> None:
    program = "def part({}):\n    return {}\n\ndef run(a):\n    return part(x=a, y=2)\n"
    assert fingerprint(program.format("x, y", "x - y")) != fingerprint(program.format("y, x", "y - x"))


def test_what_is_no_python_has_a_fingerprint_of_its_text() -> None:
    assert fingerprint("def run(") != fingerprint("def run((")
