"""Candidates of an adapted problem in the form of its own suite: a module with ModelNew, or a solution's Model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.suites.adapters import own_form

pytest.importorskip("torch")
PROBLEM = '''"""A scaled linear layer."""
import torch
import torch.nn as nn

ROWS, WIDTH = 64, 96


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
'''
OWN = """import torch.nn as nn


class {kind}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).{call}
"""


@pytest.fixture
def session(cli_here: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace of an optimisation of the adapted problem."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AISP_ISOLATION", "L1")
    (tmp_path / "layer.py").write_text(PROBLEM)
    words = ["--allow-write", str(tmp_path), "--executor", "inprocess"]
    assert cli_here("bench", "adapt", "layer.py", "--to", "pairs", *words).returncode == 0
    words = ["--bench-root", "pairs", "--preset", "quick", "--workspace", "room", "--allow-write", str(tmp_path)]
    assert cli_here("optimize", "start", "kernelbench:layer", *words).returncode == 0
    return tmp_path / "room"


def judged(cli_here: Any, text: str) -> dict[str, Any]:
    """The answer to a submission."""
    done = cli_here("optimize", "submit", text, "--executor", "inprocess", "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["status"] == "ok", answer
    assert (done.returncode == 0) == answer["result"]["passed"]
    result: dict[str, Any] = answer["result"]
    return result


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_class_is_judged_like_a_function_and_the_evidence_says_how(
    cli_here: Any, session: Path, home: Path, tmp_path: Path
) -> None:
    assert "class `ModelNew`" in (session / "README.md").read_text()
    honest = judged(cli_here, OWN.format(kind="ModelNew", call="relu_().mul_(2)"))
    assert honest["row"]["verdict"] not in ("incorrect", "invalid"), honest
    wrong = judged(cli_here, OWN.format(kind="Model", call="abs()"))
    assert wrong["row"]["verdict"] == "incorrect"
    refused = cli_here("optimize", "submit", "import torch\n\n\nclass Other:\n    pass\n", "--json")
    assert refused.returncode != 0
    assert "defines no function 'run'" in refused.stdout
    helper = "\n\ndef run(x):\n    return x\n"
    refused = cli_here("optimize", "submit", OWN.format(kind="ModelNew", call="relu()") + helper, "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "AMBIGUOUS"
    function = judged(cli_here, OWN.format(kind="Model", call="relu()") + helper.replace("(x)", "(**tensors)"))
    assert function["row"]["verdict"] == "incorrect"  # it is taken for the candidate
    assert cli_here("optimize", "finish", "--executor", "inprocess").returncode in (0, 3)
    bundle = next((home / "optimizations").glob("*/*.aisp.tar"))
    assert cli_here("verify-bundle", str(bundle)).returncode == 0


def test_other_texts_and_specifications_stay_as_they_are(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline_rows.py"
    baseline.write_text("from aisp_mcp.bench import Benchmark\n\n\nclass Rows(Benchmark):\n    ...\n")
    text = OWN.format(kind="ModelNew", call="relu()")
    assert own_form.with_run(text, baseline) == text
    assert not own_form.is_accepted(baseline)
