"""Requests to the verifier, and its answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aisp_mcp.bench.sizes import Sizes
from aisp_mcp.judge.parent.processes.placement import PlacementFactory
from aisp_mcp.judge.parent.processes.verifier_client import started

SPEC = """
from aisp_mcp.bench import Benchmark


class Rows(Benchmark):
    rows = {rows}

    def inputs(self, rng):
        return {{"a": rng.randn(self.rows)}}

    def run(self, a):
        return a
"""


@pytest.mark.torch
def test_answers_that_arrive_together_are_collected_in_order(tmp_path: Path) -> None:
    size, answered = Sizes("small", {}).text(), tmp_path / "answered"
    os.mkfifo(answered)
    verifier = started([], PlacementFactory(tmp_path, "cpu", "L1", frozenset({0})).make("verifier"))
    try:
        for rows in (3, 5, 7):
            last = f"open({str(answered)!r}, 'w').close()" if rows == 7 else ""
            (tmp_path / f"baseline_{rows}.py").write_text(SPEC.format(rows=rows) + last)
            verifier.post("sizes", path=str(tmp_path / f"baseline_{rows}.py"), size=size)
        answered.read_text()  # the first two answers are in the pipe
        assert [verifier.collect("sizes")["values"]["rows"] for _ in range(3)] == [3, 5, 7]
    finally:
        verifier.close()
