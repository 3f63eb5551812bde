"""Hints from the source alone: they name lines, and they decide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisp_mcp.judge.parent import hints
from aisp_mcp.judge.verdict import verdict
from aisp_mcp.validity import corpus


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.perf_counter_ns = lambda: 0\n", {"clocks replaced": [2]}),
        ("import time\nsetattr(time, 'perf_counter', None)\n", {"clocks replaced": [2]}),
        ("import torch\ntorch.cuda.synchronize = print\n", {"clocks replaced": [2]}),
        ("import sys\n\nx = sys._getframe(1).f_locals\n", {"frames": [3]}),
        ("import threading\nthreading.Thread(target=print)\n", {"threads": [1, 2]}),
        ("import torch\ns = torch.cuda.Stream()\n", {"streams": [2]}),
        ("import os\n\n\nos.fork()\n", {"processes": [4]}),
        ("from subprocess import run\n", {"processes": [1]}),
        ("import ctypes\n", {"native code": [1]}),
        ("def run(x, c={}):\n    return c[x.data_ptr()]\n", {"pointers": [2]}),
        ("def run(x, c={}):\n    return c[id(x)]\n", {"pointers": [2]}),
        ("import sys\nfor m in sys.modules:\n    pass\n", {"modules": [2]}),
        ("import gc\ngc.get_objects()\n", {"modules": [2]}),
        ("open('/proc/self/maps')\n", {"process files": [1]}),
        ("def run(a):\n    return a.sum(dim=1)\n", {}),
        ("class Timer:\n    def __init__(self):\n        self.time = 0\n", {}),
        ("def run(\n", {}),
        ("not " * 100_000 + "x", {}),
    ],
)
def test_what_is_pointed_at(source: str, lines: dict[str, list[int]]) -> None:
    assert hints.find(source) == lines


def test_hints_are_not_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "optimized_x.py"
    path.write_text("import ctypes, threading\n")
    (flag,) = hints.hints(path)
    assert flag.severity == "note"
    assert "starts threads (line 1); calls native code (line 1)" in flag.message
    assert (
        verdict.judge([0.5, 0.51, 0.49, 0.5, 0.52], [0.001, -0.001, 0.002, -0.001, 0.001], flags=[flag]).verdict
        == "faster"
    )


def test_code_in_a_comment_of_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "optimized_x.py"
    path.write_text("# coding: utf-7\n# nothing+AAo-import ctypes+AAo-\n")
    (flag,) = hints.hints(path)
    assert "calls native code" in flag.message
    path.write_text("# coding: nonsense\nimport ctypes\n")
    assert hints.hints(path) == []


def test_most_attacks_leave_a_trace_and_most_twins_do_not() -> None:
    """Useful as hints: the attacks on the judge's own process are pointed at; of the twins a quarter at most."""
    about_the_judge = [case for case in corpus.cases(kind="attack") if "sys._getframe" in case.candidate]
    assert all("frames" in hints.find(case.candidate) for case in about_the_judge)
    twins = corpus.cases(kind="honest")
    assert sum(bool(hints.find(case.candidate)) for case in twins) < len(twins) / 3
