"""Candidates of an adapted problem in the form of its own suite: a module with ModelNew, or a solution's Model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.optimize import measuring
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


@pytest.fixture(autouse=True)
def cheap(least_quick: None, recorded_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes load libraries for submissions to come."""
    monkeypatch.setattr(measuring, "keep_libraries_loaded", lambda *_: None)


@pytest.fixture
def session(cli_here: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace of an optimisation of the adapted problem."""
    monkeypatch.chdir(tmp_path)
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
    assert done.returncode == {True: 0, False: 3, None: 4}[answer["result"]["passed"]]
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
    refused = cli_here("optimize", "submit", OWN.format(kind="Model", call="relu()") + helper, "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "AMBIGUOUS"
    (session / "kernel.cu").write_text("// a kernel")
    (session / "two.py").write_text("from pathlib import Path\nTEXT = Path('kernel.cu').read_text()\n")
    refused = cli_here("optimize", "submit", str(session / "two.py"), "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "ONE_FILE"
    assert cli_here("optimize", "finish", "--executor", "inprocess").returncode in (0, 3, 4)
    bundle = next((home / "optimizations").glob("*/*.aisp.tar"))
    assert cli_here("verify-bundle", str(bundle)).returncode == 0


NORM = PROBLEM.replace("nn.Linear(width, width)", "nn.BatchNorm1d(width)")
INFERENCE = OWN.format(kind="ModelNew", call="relu() * 2").replace(
    "self.linear(x)", "torch.nn.functional.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias)"
)
INFERENCE = "import torch\n" + INFERENCE.replace("nn.Linear(width, width)", "nn.BatchNorm1d(width)").replace(
    "        return", "        n = self.linear\n        return"
)


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_candidate_for_inference_is_told_of_evaluation_mode(
    cli_here: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    started(cli_here, tmp_path, tmp_path / "norm.py")
    assert "--mode eval" in judged(cli_here, INFERENCE)["row"]["sentence"]
    assert cli_here("optimize", "finish", "--executor", "inprocess").returncode == 3
    bundle = next((home / "optimizations").glob("*/*.aisp.tar"))
    assert cli_here("verify-bundle", str(bundle)).returncode == 0


CALLING = PROBLEM.replace(
    "class Model", "def forward_fn(x, weight, bias):\n    return {returned}\n\n\nclass Model"
).replace(
    "(self, x):\n        return torch.relu(self.linear(x)) * 2",
    "(self, x, fn=forward_fn):\n        return fn(x, self.linear.weight, self.linear.bias)",
)
REPLACING = "import torch\n\n\ndef forward_fn(x, weight, bias):\n    return {returned}\n"


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_function_is_judged_where_the_problems_model_calls_one(
    cli_here: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layer.py").write_text(CALLING.format(returned="torch.relu(x @ weight.T + bias) * 2"))
    started(cli_here, tmp_path, tmp_path / "layer.py")
    spec = next((home / "optimizations").glob("*/spec/baseline_layer.py"))
    assert "with `forward_fn`" in own_form.help_of(spec)
    honest = judged(cli_here, REPLACING.format(returned="torch.addmm(bias, x, weight.T).relu_().mul_(2)"))
    assert honest["row"]["verdict"] not in ("incorrect", "invalid"), honest
    wrong = judged(cli_here, REPLACING.format(returned="torch.addmm(bias, x, weight.T).abs()"))
    assert wrong["row"]["verdict"] == "incorrect"
    assert judged(cli_here, CALLING.format(returned="x @ weight.T"))["row"]["verdict"] == "incorrect"  # by its Model


def test_other_texts_and_specifications_stay_as_they_are(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline_rows.py"
    baseline.write_text("from aisp_mcp.bench import Benchmark\n\n\nclass Rows(Benchmark):\n    ...\n")
    text = OWN.format(kind="ModelNew", call="relu()")
    assert own_form.with_run(text, baseline) == text
    assert own_form.help_of(baseline) == ""


SUBMISSION = """import math
from task import input_t
from utils import name


def custom_kernel(data: input_t):
    assert name == "the task's"
    a, b, output = data
    output.copy_(a {sign} b)
    return output
"""
TASK = {
    "task.yml": "description: Add two vectors.\nfiles:\n  - {name: task.py, source: task.py}\n"
    "  - {name: utils.py, source: utils.py}\nbenchmarks:\n  - {size: 4096, seed: 1}\n",
    "task.py": "input_t = tuple\n",
    "utils.py": 'name = "the task\'s"\n',
    "reference.py": "import torch\n\n\ndef generate_input(size, seed):\n    torch.manual_seed(seed)\n"
    "    a, b = torch.randn(size), torch.randn(size)\n    return a, b, torch.empty(size)\n\n\n"
    "def ref_kernel(data):\n    a, b, output = data\n    output[...] = a + b\n    return output\n",
}
DEFINITION = {
    "name": "scaled",
    "op_type": "gemm",
    "description": "A scaled product.",
    "axes": {"M": {"type": "const", "value": 64}},
    "inputs": {
        "A": {"shape": ["M", "M"], "dtype": "float32"},
        "B": {"shape": ["M", "M"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"C": {"shape": ["M", "M"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(A, B, scale):\n    return (A @ B) * scale\n",
}
WORKLOAD = {
    "axes": {},
    "inputs": {"A": {"type": "random"}, "B": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}},
}


def started(cli_here: Any, tmp_path: Path, problem: Path) -> None:
    """Adapt the problem, and begin an optimisation of it."""
    allowed = ("--allow-write", str(tmp_path), "--executor", "inprocess")
    done = cli_here("bench", "adapt", str(problem), "--to", str(tmp_path / "pairs"), *allowed, "--json")
    (target,) = [one["target"] for one in json.loads(done.stdout)["result"]["problems"]]
    words = ("--bench-root", str(tmp_path / "pairs"), "--preset", "quick", "--workspace", str(tmp_path / "room"))
    assert cli_here("optimize", "start", target, *words, *allowed[:2]).returncode == 0


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_submissions_of_gpu_mode_are_judged_with_the_tasks_modules(
    cli_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectoradd").mkdir()
    for name, text in TASK.items():
        (tmp_path / "vectoradd" / name).write_text(text)
    started(cli_here, tmp_path, tmp_path / "vectoradd")
    mine = tmp_path / "vectoradd" / "submission.py"
    mine.write_text(SUBMISSION.format(sign="+"))
    honest = judged(cli_here, str(mine))
    assert honest["row"]["verdict"] not in ("incorrect", "invalid"), honest
    assert judged(cli_here, SUBMISSION.format(sign="-"))["row"]["verdict"] == "incorrect"
    triton = judged(cli_here, "import triton\n" + SUBMISSION.format(sign="* 1 +"))
    assert "needs" in triton["row"]["sentence"]
    assert triton["candidates_left"] == honest["candidates_left"] - 1  # what cannot be measured does not count


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(180)
def test_solutions_that_take_a_definitions_scalars_are_judged(
    cli_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scaled"
    folder.mkdir()
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    (folder / "workload.jsonl").write_text(json.dumps(WORKLOAD))
    started(cli_here, tmp_path, folder)
    honest = (
        "def run(A, B, scale):\n    return (A * scale) @ B\n",
        "def run(A, B):\n    return (A * 0.5) @ B\n",
        "import torch\n\n\ndef run(A, B, scale, C):\n    torch.mm(A, B, out=C)\n    C.mul_(scale)\n",
    )
    for text in honest:
        answer = judged(cli_here, text)
        assert answer["row"]["verdict"] not in ("incorrect", "invalid"), answer
    for text in ("def run(A, B, scale):\n    return A @ B\n", "def run(A, B, scale, C):\n    C.zero_()\n"):
        assert judged(cli_here, text)["row"]["verdict"] == "incorrect"
