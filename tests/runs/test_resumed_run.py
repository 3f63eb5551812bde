"""A run that was cut off keeps what it judged, and another one goes on with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(400)]

BASELINE = """
from aisp_mcp.bench import Benchmark
class Double(Benchmark):
    def inputs(self, rng):
        return {"a": rng.randn(256, 256)}
    def run(self, a):
        return a + a
"""


def test_a_cancelled_run_is_resumed(cli, tmp_path: Path) -> None:
    """The verdict that was there is taken over, raw log and all; a file that has changed since is measured again."""
    suite = tmp_path / "bench" / "ch01"
    suite.mkdir(parents=True)
    (suite / "baseline_double.py").write_text(BASELINE)
    for name in ("one", "two", "three"):
        (suite / f"optimized_double_{name}.py").write_text("def run(a):\n    return 2 * a\n")
    command = ("bench", "run", "--bench-root", str(suite.parent), "--preset", "quick", "--json", "--targets", "ch01")

    def answer(*args: str) -> dict:
        return json.loads(cli(*args).stdout)

    job = answer(*command, "--wait-s", "0")["job"]["job_id"]
    deadline = time.monotonic() + 300
    while (report := answer("bench", "export", "--run-id", job, "--json"))[
        "status"
    ] == "error" and time.monotonic() < deadline:
        pass  # the first verdict is not there yet
    assert report["status"] == "ok"
    answer("job", "cancel", job, "--json")

    first = answer(*command, "--resume", job, "--evidence")["result"]["evidence"]
    logs = {row["candidate"]: row["log_path"] for row in first}
    assert logs.keys() == {"one", "two", "three"}
    assert [name for name, path in logs.items() if job in path][:1] == [first[0]["candidate"]]

    (suite / "optimized_double_two.py").write_text("def run(a):\n    return a * 2\n")
    run = answer(*command, "--resume", job, "--evidence")["result"]
    assert {row["candidate"] for row in run["evidence"] if job in row["log_path"]} <= {"one", "three"}
    assert [row["candidate"] for row in run["evidence"] if run["run_id"] in row["log_path"]].count("two") == 1
