"""A scanned parameter and the files of hyperfine's form, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.gate.commands import scan


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["n", "1", "3"], ["1", "2", "3"]),
        (["n", "0.5", "1", "0.25"], ["0.50", "0.75", "1.00"]),
        (["n", "2", "2"], ["2"]),
    ],
)
def test_a_range_has_its_ends(texts: list[str], values: list[str]) -> None:
    parameter = scan.parameter(texts)
    assert parameter is not None
    assert [float(value) for value in parameter.values] == [float(value) for value in values]


NOT_RANGES = ("n", "n a b", "n 3 1", "n 1 9 0", "input 1 2", "n 1 9999")


@pytest.mark.parametrize("texts", [text.split() for text in NOT_RANGES])
def test_what_is_not_a_range(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=r"range|number|parameter"):
        scan.parameter(texts)


def test_values_are_compared_and_exported(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "show.sh").write_text("echo $1\n")
    words = ["--runs", "4", "--warmup", "1", "--export-json", "out.json", "--export-markdown", "out.md", "--json"]
    commands = ["sh show.sh {n}", "sh show.sh {n}"]
    done = cli("bench", "commands", *commands, "--parameter-scan", "n", "1", "2", "--no-confirm", *words, cwd=tmp_path)
    assert done.returncode in (0, 3, 4)
    answer = json.loads(done.stdout)["result"]
    assert [point["value"] for point in answer["scan"]] == ["1", "2"]
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [(entry["command"], entry["parameters"]) for entry in results[1:3]] == [
        ("sh show.sh 1", {"n": "1"}),
        ("sh show.sh 2", {"n": "2"}),
    ]
    assert all(len(entry["times"]) == len(entry["exit_codes"]) >= 4 for entry in results)
    assert all(entry["min"] <= entry["median"] <= entry["max"] for entry in results)
    assert (tmp_path / "out.md").read_text().count("`sh show.sh 1`") == 2
