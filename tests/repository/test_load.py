"""The load script's judgement: which turns pass and which do not. No figure is measured here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LoadTool = Callable[[str], ModuleType]


def turn(busy: bool, time_s: tuple[float, float], rate: float = 1010.0) -> dict[str, Any]:
    seen = {"calls_per_s": rate, "call_ms_p50": 2.0, "call_ms_p99": 8.0, "call_ms_max": 20.0} if busy else {}
    ratio = time_s[0] / time_s[1]
    return {
        "asked": busy,
        "time_s": list(time_s),
        "ratio": ratio,
        "interval": [ratio, ratio],
        "noise_floor": 0.001,
        **seen,
    }


QUIET = [turn(False, (1.0, 0.5)), turn(False, (1.0, 0.502)), turn(False, (1.0, 0.501)), turn(False, (1.0, 0.501))]
# Four quiet candidates scatter by 0.16 %, so that groups of four and two differ by 0.45 % at most; the baselines are
# all the same, and the floor that runs state, 0.1 %, is theirs.


@pytest.mark.parametrize(
    ("busy_turns", "missed"),
    [
        ([turn(True, (1.0009, 0.501)), turn(True, (1.0, 0.504))], set()),
        ([turn(True, (1.0021, 0.501)), turn(True, (1.0021, 0.501))], {"baseline, change"}),
        ([turn(True, (1.0, 0.504)), turn(True, (1.0, 0.504))], {"candidate, change", "their ratio, change"}),
        ([turn(True, (0.8, 0.4)), turn(True, (0.8, 0.4))], {"baseline, change", "candidate, change"}),
        ([turn(True, (1.0, 0.501)), turn(True, (1.0, 0.501), rate=990)], {"calls a second that were not answered"}),
    ],
)
def test_a_changed_median_and_a_missed_rate_are_seen(
    load_tool: LoadTool, root: Path, monkeypatch: pytest.MonkeyPatch, busy_turns: list[dict[str, Any]], missed: set[str]
) -> None:
    monkeypatch.syspath_prepend(root / "tools")  # scripts import their neighbours
    figures = load_tool("load").judged([*QUIET, *busy_turns])
    failed = {figure.name for figure in figures if not figure.passed}
    assert failed == missed


@pytest.mark.parametrize("quiet", [[turn(False, (1.0, 0.5))], [turn(False, (1.0, 0.5)), turn(False, (1.0, 0.51))]])
def test_quiet_runs_that_are_too_few_or_too_far_apart_show_nothing(
    load_tool: LoadTool, root: Path, monkeypatch: pytest.MonkeyPatch, quiet: list[dict[str, Any]]
) -> None:
    monkeypatch.syspath_prepend(root / "tools")
    failed = {figure.name for figure in load_tool("load").judged([*quiet, turn(True, (1.0, 0.5))]) if not figure.passed}
    assert "candidate, noise floor" in failed
