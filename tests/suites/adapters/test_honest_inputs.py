"""Inputs of foreign problems as they were meant: buffers for outputs, signs, parameters of one element, sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import adapter_support as support
import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.protocol.draws.rng import CallRng  # noqa: E402
from aisp_mcp.suites.adapters import formats, writing  # noqa: E402
from aisp_mcp.suites.adapters.recording import recorder  # noqa: E402

BUFFERS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, output):
        return x.double().sum(1).float()


def get_inputs():
    return [torch.rand(64, 512), torch.empty(64)]


def get_init_inputs():
    return []
"""
PROBLEM = """
import torch

N = 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, predictions, targets):
        return torch.clamp(self.scale - predictions * targets, min=0).sum(1) / N


def get_inputs():
    return [torch.rand(N, 512), torch.randint(0, 2, (N, 512)).float() * 2 - 1]


def get_init_inputs():
    return []
"""


def recorded(path: Path, folder: Path, **options: Any) -> tuple[Any, Any, Any]:
    """(problem, its reference, what the recorder finds)."""
    (problem,) = formats.find(path, None, options.get("candidates", ()), options.get("constants", {}))
    support.write(folder, {Path(name).stem: text for name, text in problem.files.items()})
    module: Any = formats.load(problem.format)
    reference = module.Reference(folder, **problem.reference)
    return problem, reference, recorder.record(reference)


def test_memory_for_an_output_is_no_input(tmp_path: Path) -> None:
    file = support.write(tmp_path / "sum", {"sums": BUFFERS}) / "sums.py"
    problem, reference, found = recorded(file, tmp_path / "out")
    assert found.in_place == ("output",)
    once, again = (reference.recipe(CallRng("cpu", 7)) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert "in_place = scratch = ('output',)" in writing.files(problem, found)[f"baseline_{problem.name}.py"]


def test_signs_stay_signs_and_a_parameter_of_one_element_is_drawn(tmp_path: Path) -> None:
    file = support.write(tmp_path / "one", {"hinge": PROBLEM}) / "hinge.py"
    problem, _, found = recorded(file, tmp_path / "out")
    assert {one.name: one.how for one in found.tensors} == {
        "predictions": "uniform",
        "targets": "recipe",
        "scale": "normal",
    }
    text = writing.files(problem, found)[f"baseline_{problem.name}.py"]
    assert "'scale': rng.randn(1) * 0.1 + 1," in text


def test_a_copy_of_the_whole_file_gets_the_sizes_too(tmp_path: Path) -> None:
    file = support.write(tmp_path / "one", {"hinge": PROBLEM}) / "hinge.py"
    copy = support.write(tmp_path / "two", {"mine": PROBLEM.replace("Model", "ModelNew")}) / "mine.py"
    out = tmp_path / "out"
    problem, reference, _ = recorded(file, out, candidates=[copy], constants={"N": 32})
    ((_, about),) = problem.candidates.items()
    module: Any = formats.load("kernelbench")
    candidate = module.Candidate(out, **about, arguments=reference.arguments)
    inputs = reference.recipe(CallRng("cpu", 3))
    params = {"scale": torch.full((1,), 1.25)}
    (prepared,) = candidate.prepare(params, inputs).values()
    assert torch.equal(candidate.run(module=prepared, **inputs), reference.run(**inputs, **params))
