"""The measuring script works, says when a budget is missed, and measures what it claims. No figure is asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

LoadTool = Callable[[str], ModuleType]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_figure_is_measured_on_the_real_server_and_command_line(root: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.json"
    command = [sys.executable, "tools/perf.py", "--repeats", "1", "--calls", "2", "--json", str(samples)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    figures = {figure["name"]: figure for figure in json.loads(samples.read_text())["figures"]}
    assert all(name in done.stdout for name in figures)
    assert figures["of those: mcp, torch, triton, numpy"]["value"] == 0
    assert figures["modules loaded by aisp --help"]["value"] > 20
    assert all(figure["value"] > 0 for figure in figures.values() if figure["unit"])


def test_a_missed_budget_is_marked(load_tool: LoadTool) -> None:
    perf = load_tool("perf")
    within, missed = perf.Figure("kept", 0.2, "s", 0.3, [0.2]), perf.Figure("slow", 0.4, "s", 0.3, [0.4])
    assert (within.passed, missed.passed) == (True, False)
    table = perf.table([within, missed])
    assert "| slow | 0.4 s **missed** | ≤ 0.3 s | 1 |" in table
    assert table.count("missed") == 1


def test_the_percentile_is_one_of_the_samples_order(load_tool: LoadTool) -> None:
    assert load_tool("perf").percentile([float(i) for i in range(101)], 95) == 95.0
