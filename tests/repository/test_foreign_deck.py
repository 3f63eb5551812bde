"""The table of other projects' problems: a size that the judge refuses gives way to the next one of the deck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
PROBLEM = '''"""A function of rows."""
import torch
import torch.nn as nn

width, shift = 4096, 0.0


class {name}(nn.Module):
    def forward(self, x):
        return {returned}


def get_inputs():
    return [torch.randn(64, width)]


def get_init_inputs():
    return []
'''
SOFTMAX, SHIFTED = "x.softmax(dim=1)", "(x + shift) - shift"


def rows(deck: Path, returned: str, reduced: list[dict[str, Any]], candidates: list[str]) -> list[dict[str, Any]]:
    """The table of one problem with candidates that do the same."""
    folder = deck / "own" / "function"
    folder.mkdir(parents=True)
    for name, kind in (("function", "Model"), *((each, "ModelNew") for each in candidates)):
        (folder / f"{name}.py").write_text(PROBLEM.format(name=kind, returned=returned))
    entry: dict[str, Any] = {
        "group": "own",
        "problem": "function",
        "path": "own/function/function.py",
        "format": "kernelbench",
    }
    entry |= {"shapes": [{}], "reduced": reduced, "candidates": {f"{name}.py": "honest" for name in candidates}}
    (deck / "deck.jsonl").write_text(json.dumps(entry) + "\n")
    script = Path(__file__).parents[2] / "validation" / "foreign" / "run_deck.py"
    words = [script, deck, "--out", deck / "table.json", "--reduced", "--no-plain", "--inside"]
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "AISP_ISOLATION": "L1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((deck / "table.json").read_text())["rows"]  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("returned", "reduced", "candidates"),
    [
        (SOFTMAX, [{"width": 1}, {"width": 64}], ["one", "two"]),  # NOTHING_MEASURED: each is DEGENERATE
        (SHIFTED, [{"shift": 2e7}, {"shift": 0.5}], ["one"]),  # UNSTABLE: rounding decides
    ],
)
def test_sizes_are_tried_until_one_can_be_judged(
    home: Path, tmp_path: Path, returned: str, reduced: list[dict[str, Any]], candidates: list[str]
) -> None:
    table = rows(tmp_path / "deck", returned, reduced, candidates)
    assert [row["id"] for row in table] == [f"own/function/{name}#0" for name in candidates]
    for row in table:
        assert row.get("verdict") in ("same", "inconclusive", "faster", "slower"), row
