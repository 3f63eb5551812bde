"""Tools that call functions, asked about engines: fuzzing serves traces, profiling watches one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.validity import issues

COMPLETE = f"""{issues.snippet("answer")}
def serve(requests, emit, **weights):
    served = 0
    while new := requests.wait():
        for request in new:
            for token in answer(request, weights):
                emit(request.id, token)
            served += 1
"""
FORGETFUL = COMPLETE.replace("in new:\n", "in new:\n            if served > 3:\n                continue\n")

pytestmark = pytest.mark.torch


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "ch01"
    folder.mkdir(parents=True)
    small = issues.baseline("serve_small").replace("for _ in range(6)", "for _ in range(self.max_requests)")
    sized = small.replace(
        '    goal = "latency"\n', '    goal = "latency"\n    sizes = {"small": {"max_requests": 6}}\n'
    )
    (folder / "baseline_small.py").write_text(sized)
    (folder / "optimized_small.py").write_text('"""The same."""\n' + COMPLETE)
    (folder / "optimized_small_forgetful.py").write_text('"""Four requests at most."""\n' + FORGETFUL)
    return folder.parent


def test_an_engine_is_fuzzed_by_its_tokens(cli_here: Any, suite: Path) -> None:
    words = ["--grid", "max_requests=4,5", "--no-boundaries", "--json", "--bench-root", str(suite)]
    done = cli_here("bench", "fuzz", "ch01:small_forgetful", *words)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)["result"]
    assert (report["tested"], report["passed"]) == (2, False)
    (failing,) = report["failing"]
    assert failing["sizes"] == {"max_requests": 5}
    assert failing["errors"][0] == "at once: 0 of 8 tokens were emitted for request 4"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_engine_is_profiled_while_it_serves_a_trace(cli: Any, suite: Path) -> None:
    for side in ("baseline", "candidate"):
        words = ["--target", "ch01:small", "--side", side, "--json", "--bench-root", str(suite)]
        done = cli("profile", "torch", *words)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)["result"]
        names = {row["name"]: row["count"] for row in answer["operators"]}
        assert names["step"] == 1
        assert names["aten::mm"] >= 6 * 8  # of six requests, each of eight tokens
