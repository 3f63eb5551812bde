"""Problems in KernelBench's form that keep their sizes elsewhere: parameters with defaults, and files of cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.adapted import Slot
from aisp_mcp.judge.candidate.formats import kernelbench
from aisp_mcp.judge.verifier.evaluation import evaluate_jittered
from aisp_mcp.suites.adapters import formats
from aisp_mcp.suites.adapters.base import Problem, Recorded
from aisp_mcp.suites.adapters.recording import recorder

torch = pytest.importorskip("torch")
FUNCTION = """
import torch
from torch import nn


def forward_fn(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Model(nn.Module):
    def __init__(self, width: int = 64, eps: float = 1e-5, start: str = "ones"):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width) if start == "ones" else torch.randn(width))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.eps)


def get_inputs(batch_size: int = 16, width: int = 64):
    return [torch.randn(batch_size, width)]
"""
CONFIG = {
    "single_input_configs": [{"batch_size": 8}],
    "single_init_configs": [{"start": "random"}],
    "single_shared_configs": [{"width": 96}],
}
FAST = """
import torch


def forward_fn(x, weight, eps):
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
"""
CASES = '''
import json
import os

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, dim):
        return torch.cumsum(x, dim)


def get_input_groups():
    """One group per line."""
    path = os.path.splitext(__file__)[0] + ".json"
    with open(path) as file:
        cases = [json.loads(line) for line in file]
    return [[torch.randn(case["shape"]), case["dim"]] for case in cases]
'''

MADE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))
        self.table = {table}

    def forward(self, x):
        return self.weight, self.table


def get_inputs():
    return [torch.randn(4, 64)]
"""


def problem(root: Path, *candidates: Path, **constants: Any) -> Problem:
    (found,) = formats.find(root, None, candidates, constants)
    return found


def written(found: Problem, folder: Path) -> Path:
    for name, text in found.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def record(found: Problem, folder: Path) -> Recorded:
    return recorder.record(kernelbench.Reference(written(found, folder), **found.reference))


def shapes(recorded: Recorded) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in recorded.tensors}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task as in robust-kbench."""
    folder = tmp_path / "rms_norm"
    folder.mkdir()
    (folder / "func_forward.py").write_text(FUNCTION)
    (folder / "func_backward.py").write_text(FUNCTION + "\n\nclass AutogradFunction:\n    backward_fn = None\n")
    (folder / "config_forward.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A problem with cases as in MultiKernelBench."""
    lines = [{"shape": [128], "dim": 0}, {"shape": [4, 96], "dim": 1}]
    (tmp_path / "cumsum.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "cumsum.py").write_text(CASES)
    return tmp_path / "cumsum.py"


def test_values_of_parameters_are_those_of_the_configuration(task: Path, tmp_path: Path) -> None:
    found = problem(task)
    assert found.name == "rms_norm"
    assert shapes(record(found, tmp_path / "own")) == {"x": (8, 96), "weight": (96,)}


def test_several_configurations_are_several_targets(task: Path) -> None:
    several = {**CONFIG, "single_init_configs": [{"start": "random"}, {"eps": 1e-3}]}
    (task / "config_forward.json").write_text(json.dumps(several))
    assert [each.name for each in formats.find(task, None, [], {})] == ["rms_norm_0", "rms_norm_1"]


def test_an_unreadable_configuration_is_refused(task: Path) -> None:
    (task / "config_forward.json").write_text("{}")
    with pytest.raises(BenchmarkError) as error:
        problem(task)
    assert error.value.code == "UNREADABLE"


def test_sizes_that_are_set_replace_those_of_parameters(task: Path, tmp_path: Path) -> None:
    found = problem(task, width=32, batch_size=4)
    assert shapes(record(found, tmp_path / "own")) == {"x": (4, 32), "weight": (32,)}


def test_a_name_that_is_neither_is_refused_with_those_that_are(task: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="nothing to batch") as error:
        record(problem(task, batch=4), tmp_path / "own")
    assert "batch_size, eps, start, width" in str(error.value.hint)


def test_parameters_without_a_configuration_keep_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(FUNCTION)
    assert shapes(record(problem(tmp_path / "norm.py", batch_size=4), tmp_path / "own"))["x"] == (4, 64)


def test_a_function_is_a_candidate_where_the_model_calls_one(task: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAST)
    found = problem(task, tmp_path / "mine.py")
    folder = written(found, tmp_path / "own")
    recorded = record(found, folder)
    arguments = {"x": torch.randn(8, 96)}
    weight = {"weight": torch.randn(96)}
    structure = eval(recorded.arguments, {"Slot": Slot})
    expected = kernelbench.Reference(folder, arguments=structure, **found.reference).run(**arguments, **weight)
    candidate = kernelbench.Candidate(folder, arguments=structure, **found.candidates["mine"])
    prepared = candidate.prepare(weight, arguments)
    assert torch.allclose(candidate.run(**prepared, **arguments), expected, atol=1e-5)
    assert candidate._more["fn"].__module__ == "kernelbench_candidate"


def test_the_function_may_have_another_name(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(FUNCTION.replace("forward_fn", "module_fn"))
    (tmp_path / "mine.py").write_text(FAST.replace("forward_fn", "module_fn"))
    found = problem(tmp_path / "norm.py", tmp_path / "mine.py")
    assert found.candidates["mine"]["function"] == "module_fn"


def test_a_file_without_a_known_name_is_refused_with_all_of_them(task: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAST.replace("forward_fn", "run"))
    with pytest.raises(BenchmarkError, match="no ModelNew and no Model and no forward_fn"):
        problem(task, tmp_path / "mine.py")


def test_gradients_are_refused(task: Path) -> None:
    with pytest.raises(BenchmarkError) as error:
        problem(task / "func_backward.py")
    assert error.value.code == "UNSUPPORTED_BACKWARD"


def test_the_first_case_is_measured_or_the_one_that_is_named(cases: Path, tmp_path: Path) -> None:
    first = problem(cases)
    assert shapes(record(first, tmp_path / "first")) == {"x": (128,)}
    assert first.disclosed == ("inputs are those of case 0 of 2 in cumsum.json; choose another with group",)
    assert shapes(record(problem(cases, group=1), tmp_path / "second")) == {"x": (4, 96)}


def test_a_case_that_is_missing_is_refused(cases: Path) -> None:
    with pytest.raises(BenchmarkError, match="no case 2") as error:
        problem(cases, group=2)
    assert error.value.code == "NO_GROUP"


@pytest.mark.parametrize(("table", "moved"), [("torch.arange(8).cos()", True), ("torch.arange(8)", False)])
def test_noise_is_added_to_what_a_module_computes_and_not_to_what_it_is_given(
    tmp_path: Path, table: str, moved: bool
) -> None:
    """Parameters are given; a table of angles is computed when the module is made."""
    (tmp_path / "problem.py").write_text(MADE.format(table=table))
    reference = kernelbench.Reference(tmp_path)
    tensors: dict[str, Any] = {}
    reference.arguments = reference.named(reference.draw(), tensors)
    reference.run(**tensors, **reference.state())
    given = {name: value.double() for name, value in {**tensors, **reference.state()}.items()}
    weight, noisy = evaluate_jittered(lambda: reference.run(**given), 1e-7, 64.0, 3)
    assert moved or torch.equal(weight, given["weight"])
    assert torch.equal(noisy, torch.arange(8)) is not moved
