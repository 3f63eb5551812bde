"""Runs of another suite's problem: gated from the files that they stored, triaged, and bundled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.optimize.bundle import archive

pytest.importorskip("torch")
PROBLEM = '''"""Row sums of exponentials."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 64)

    def forward(self, x):
        return torch.logsumexp(self.linear(x), 1)


def get_inputs():
    return [torch.randn(256, 128)]


def get_init_inputs():
    return [128]
'''
CANDIDATE = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 64)

    def forward(self, x):
        return {returned}
"""
RIGHT, WRONG = "torch.logsumexp(self.linear(x), 1)", "self.linear(x).exp().sum(1)"
SLOW = "torch.stack([torch.logsumexp(row, 0) for row in self.linear(x)])"
QUICK = ("--preset", "quick", "--json")


def answer(done: Any) -> dict[str, Any]:
    """The answer of a command."""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measured(cli_here: Any, folder: Path, **candidates: str) -> dict[str, Any]:
    """The run of the problem in the folder with these candidates, each given as what its forward() returns."""
    folder.mkdir(exist_ok=True)
    (folder / "rows.py").write_text(PROBLEM)
    for name, returned in candidates.items():
        (folder / f"rows_{name}.py").write_text(CANDIDATE.format(returned=returned))
    return answer(cli_here("bench", "run", "--from", f"kernelbench:{folder}", *QUICK))["result"]  # type: ignore[no-any-return]


@pytest.fixture
def direct(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process, without walls: they are not what is tested."""
    monkeypatch.setenv("AISP_ISOLATION", "L1")
    monkeypatch.setenv("AISP_EXECUTOR", "inprocess")


@pytest.mark.slow
@pytest.mark.usefixtures("direct")
@pytest.mark.timeout(300)
def test_stored_runs_of_an_adapted_problem_are_gated(cli_here: Any, tmp_path: Path) -> None:
    base = measured(cli_here, tmp_path / "problems", mine=SLOW, other=RIGHT, bad=WRONG)["run_id"]
    head = measured(cli_here, tmp_path / "problems", mine=RIGHT, other=WRONG, bad=WRONG)["run_id"]
    (tmp_path / "problems").rename(tmp_path / "gone")  # the files that the runs stored are enough
    named = ("bench", "gate", "--base", "last~1", "--head", "last")
    done = cli_here(*named, *QUICK)
    gate = answer(done)["result"]
    rows = {row["target"].removeprefix("kernelbench:rows_"): row for row in gate["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "mine": "improved",
        "other": "wrong",
        "bad": "failed",
    }
    assert "UNSTABLE: The base's version" in rows["bad"]["sentence"]
    assert f"`{base[:12]}` → `{head[:12]}`" in Path(gate["comment_path"]).read_text()
    assert not any(row["spec_changed"] for row in rows.values())
    assert (done.returncode, gate["base"], gate["head"]) == (3, base, head)

    bundle = answer(cli_here("bench", "bundle", gate["run_id"], "--json"))["result"]
    _, files = archive.unpack(Path(bundle["path"]).read_bytes())
    stored = {name.partition("-rows_")[2]: text.decode() for name, text in files.items()}
    assert SLOW in stored["mine/baseline_source/_rows/mine.py"]
    assert RIGHT in stored["mine/candidate_source/_rows/mine.py"]

    refused = answer(cli_here(*named, *QUICK))["error"]  # `last` is the gate now
    assert (refused["code"], base in refused["hint"]) == ("NOTHING_KEPT", True)
    steps = answer(cli_here("bench", "triage", gate["run_id"], "--json"))["result"]["run_next"]
    assert not any("last" in str(step["args"]) for step in steps)
    words = ("--base", base, "--head", head, "--targets", "mine")
    refused = answer(cli_here("bench", "gate", *words, *QUICK))["error"]
    assert "It has kernelbench:rows_bad, kernelbench:rows_mine" in refused["hint"]


@pytest.mark.slow
@pytest.mark.usefixtures("direct")
@pytest.mark.timeout(300)
def test_a_run_with_a_wrong_candidate_is_triaged_and_bundled(cli_here: Any, tmp_path: Path) -> None:
    run = measured(cli_here, tmp_path / "problems", mine=SLOW, bad=WRONG)["run_id"]
    suspect = answer(cli_here("bench", "triage", "last", "--json"))["result"]["suspect"]
    assert {row["candidate"] for row in suspect if row["code"] == "incorrect_output"} == {"bad"}
    assert not any(row["code"] == "near_tolerance" for row in suspect)
    bundle = answer(cli_here("bench", "bundle", "--json"))["result"]
    assert {claim["run_id"] for claim in bundle["claims"]} == {run}
    assert answer(cli_here("verify-bundle", bundle["path"], "--json"))["result"]["passed"]

    alone = tmp_path / "alone.py"
    alone.write_text(PROBLEM)
    refused = answer(cli_here("bench", "run", "--from", f"kernelbench:{alone}", *QUICK))["error"]
    assert (refused["code"], "Give the folder" in refused["hint"]) == ("NO_CANDIDATE", True)
    assert answer(cli_here("bench", "bundle", "--json"))["error"]["code"] == "NO_EVIDENCE"  # that run has no verdict


@pytest.mark.usefixtures("least_quick")
@pytest.mark.timeout(180)
def test_runs_of_functions_cannot_be_gated(cli_here: Any, tmp_path: Path) -> None:
    file = tmp_path / "sums.py"
    file.write_text("def slow(x):\n    return x.sum(1)\n\n\ndef fast(x):\n    return x.sum(dim=1)\n")
    pair = (f"{file}:slow", f"{file}:fast", "--inputs", "x=randn(8,8)")
    run = answer(cli_here("bench", "verify", *pair, *QUICK))["result"]["run_id"]
    refused = answer(cli_here("bench", "gate", "--base", run, "--head", "last", *QUICK))["error"]
    assert (refused["code"], "bench verify OLD NEW" in refused["hint"]) == ("NOTHING_KEPT", True)
