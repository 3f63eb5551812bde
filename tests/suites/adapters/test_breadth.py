"""Many operators in every format: each adapts unchanged, draws secret inputs, and an identical candidate is right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adapter_support as support
import breadth_kernelbench as kernelbench
import breadth_others as others
import pytest

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.protocol.draws.rng import MODES, CallRng
from aisp_mcp.suites.adapters import formats, writing
from aisp_mcp.suites.adapters.base import Problem
from aisp_mcp.suites.adapters.recording import recorder

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules of one problem, such as `task`, are not those of the next."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.set_num_threads(1)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def adapted(problem: Problem, folder: Path) -> tuple[Benchmark, Any]:
    """The specification and the candidate of a problem that has one, recorded in this process as the child does."""
    for name, text in problem.files.items():
        place = folder / f"_{problem.name}" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    module: Any = formats.load(problem.format)
    recorded = recorder.record(module.Reference(folder / f"_{problem.name}", **problem.reference))
    spaces = []
    for name, text in sorted(writing.files(problem, recorded).items()):
        space: dict[str, Any] = {"__file__": str(folder / name), "__name__": name.removesuffix(".py")}
        exec(compile(text, name, "exec"), space)
        spaces.append(space)
    kinds = [space for space in spaces[0].values() if isinstance(space, type) and issubclass(space, Benchmark)]
    return next(kind for kind in kinds if kind is not Benchmark)(), spaces[1]


def check(problem: Problem, folder: Path) -> None:
    """Inputs are new for every seed and in every mode, and the candidate's outputs are the specification's."""
    specification, candidate = adapted(problem, folder)
    params = specification.params(CallRng("cpu", 7, secret_statistics=False))
    drawn = [specification.inputs(CallRng("cpu", seed)) for seed in (1, 2)]
    for name, first in drawn[0].items():
        assert not torch.equal(first, drawn[1][name]), f"{problem.name}: {name} is the same under two seeds"
    prepared = candidate["prepare"](params, drawn[0])
    for mode in MODES:
        inputs = specification.inputs(CallRng("cpu", 3, mode))
        expected = specification.run(**{name: tensor.clone() for name, tensor in inputs.items()}, **params)
        rows = candidate["run"](**{name: tensor.clone() for name, tensor in inputs.items()}, **prepared)
        torch.testing.assert_close(rows, expected, equal_nan=True, msg=lambda text: f"{problem.name}: {text}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_fifty_operators_in_the_format_of_kernelbench(tmp_path: Path, step: int) -> None:
    folder = support.write(tmp_path / "in", kernelbench.problems() | kernelbench.identical())
    by_name = formats.find(folder, None, (), {})
    assert len(by_name) == len(kernelbench.TABLE) >= 50
    for problem in by_name[::step]:
        assert list(problem.candidates) == ["same"], problem.name
        check(problem, tmp_path / "out")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(others.TABLE))
def test_ten_operators_in_each_other_format(tmp_path: Path, name: str) -> None:
    for kind, write in others.WRITERS.items():
        (problem,) = formats.find(write(tmp_path / kind, name), None, (), {})
        assert problem.format == kind
        check(problem, tmp_path / "out" / kind)
