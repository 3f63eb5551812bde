"""The check command and the generator do not pass when they should not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

LoadTool = Callable[[str], ModuleType]


def test_a_check_whose_tool_is_missing_has_failed(load_tool: LoadTool, capsys: pytest.CaptureFixture[str]) -> None:
    check = load_tool("check")
    assert not check.run(check.Step("lint", check.python("-m", "no_such_linter")))
    printed = capsys.readouterr().out
    assert "No module named no_such_linter" in printed
    assert "FAIL" in printed


def test_every_check_is_in_the_list(load_tool: LoadTool) -> None:
    commands = " ".join(" ".join(step.argv) for step in load_tool("check").STATIC)
    for tool in (
        "ruff format --check",
        "ruff check",
        "mypy",
        "importlinter",
        "tools/budgets.py",
        "tools/gen.py --check",
    ):
        assert tool in commands


def test_one_failing_step_fails_the_command_and_the_others_still_run(
    load_tool: LoadTool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    check = load_tool("check")
    monkeypatch.setattr(check, "most_complex", list)
    steps = [check.Step("first", [sys.executable, "-c", "print(4711); raise SystemExit(3)"])]
    steps.append(check.Step("second", [sys.executable, "-c", "print('hidden')"]))
    monkeypatch.setattr(check, "STATIC", steps)
    monkeypatch.setattr(sys, "argv", ["check.py", "--fast"])
    assert check.main() == 1
    printed = capfd.readouterr().out
    assert "4711" in printed
    assert "hidden" not in printed
    assert "1 of 2 checks passed; failed: first" in printed


def test_the_most_complex_functions_are_listed_first(load_tool: LoadTool) -> None:
    lines = load_tool("check").most_complex(3)
    values = [int(line.split()[0]) for line in lines]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    assert all(".py:" in line for line in lines)


def test_drift_of_a_generated_file_is_found_and_repaired(
    load_tool: LoadTool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gen = load_tool("gen")
    pages = {"docs/tools.md": f"{gen.MARKER} -->\nnew\n"}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/old.md").write_text(f"{gen.MARKER} -->\n")
    (tmp_path / "docs/by_hand.md").write_text("prose\n")
    snapshot = tmp_path / gen.ONLY_GENERATED / "gone.json"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_text("{}")
    assert gen.check(tmp_path, pages) == 1
    printed = capsys.readouterr().out
    assert "old.md: nothing generates" in printed
    assert "gone.json: nothing generates" in printed
    gen.write(tmp_path, pages)
    assert gen.check(tmp_path, pages) == 0
    assert sorted(p.name for p in (tmp_path / "docs").iterdir()) == ["by_hand.md", "tools.md"]
    assert not snapshot.exists()


def test_continuous_integration_runs_the_test_command_and_nothing_else(root: Path) -> None:
    script = root / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]
    subprocess.run(["bash", "-n", script], check=True)


def test_the_demonstration_shows_how_many_calls_were_verified_whatever_the_sentence_says(load_tool: LoadTool) -> None:
    judged = {
        "target": "ch01:a",
        "verdict": "faster",
        "sentence": "faster: 1.59x on all kinds of inputs; the gain depends on the values",
        "ratio": 1.59,
        "interval": [1.5, 1.7],
        "verified": [90, 342],
        "isolation": "L3",
    }
    demo = load_tool("demo")
    assert "90 of 342 timed calls verified" in demo.row(judged)
    assert "–" in demo.row({**judged, "verified": []})
