"""Tests of pytest-benchmark as projects have them: fixtures, parameters, classes, relative imports."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

import adapter_support as support
import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate.adapted import Slot, build
from aisp_mcp.judge.candidate.formats import pytest_benchmark
from aisp_mcp.suites.adapters import formats, writing
from aisp_mcp.suites.adapters.base import Problem, Recorded
from aisp_mcp.suites.adapters.recording import recorder

torch = pytest.importorskip("torch")
SUITE = """
import pytest
from ..kernels import slow, quick
from . import conftest


class TestTotal:
    @pytest.mark.parametrize("scale", [2.0, 3.0])
    def test_naive(self, benchmark, rows, scale):
        if benchmark.disabled:
            pytest.skip("only for figures")
        result = benchmark(slow, rows, scale=scale)
        assert benchmark.stats["mean"] < 1

    def test_quick(self, benchmark, rows):
        benchmark.pedantic(quick, setup=lambda: ((rows,), {"scale": 2.0}), rounds=3)
"""
KERNELS = "def slow(x, scale):\n    return sum(x) * scale\n\n\ndef quick(x, scale):\n    return x.sum(0) * scale\n"
CONFTEST = "import pytest\nimport torch\n\n\n@pytest.fixture\ndef rows():\n    return torch.randn(32, 64)\n"
OWN_FIXTURE = "\n\n@pytest.fixture\ndef benchmark():\n    return lambda function, *arguments: None\n"
GROUPS = """
import pytest, numpy as np
@pytest.mark.benchmark(group="sum")
def test_loop(benchmark):
    benchmark(sum, np.random.rand(64))
@pytest.mark.benchmark(group="sum")
def test_numpy(benchmark):
    benchmark(np.sum, np.random.rand(64))
def test_text(benchmark):
    @benchmark
    def result():
        return "a" * 9
if True:
    def test_alone(benchmark):
        benchmark(np.sort, np.random.rand(64))
"""


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of a project are not those of the next, and the session that runs this is none of its plugins."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        if not name.startswith(("torch", "numpy", "aisp_mcp", "_pytest", "pytest")):
            del sys.modules[name]


def project(root: Path, conftest: str = CONFTEST) -> Path:
    """A package with a test folder inside."""
    support.write(root, {"setup": ""})
    support.write(root / "pack", {"__init__": "", "kernels": KERNELS})
    return support.write(root / "pack" / "tests", {"__init__": "", "conftest": conftest, "test_total": SUITE})


def record(problem: Problem, folder: Path) -> Recorded:
    for name, text in problem.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return recorder.record(pytest_benchmark.Reference(folder, **problem.reference))


@pytest.mark.parametrize("conftest", [CONFTEST, CONFTEST + OWN_FIXTURE])
def test_a_test_of_a_project_is_run_up_to_its_call(tmp_path: Path, conftest: str) -> None:
    (problem,) = formats.find(project(tmp_path / "in", conftest) / "test_total.py", None, (), {})
    assert problem.reference["test"] == "TestTotal::test_naive"
    recorded = record(problem, tmp_path / "out")
    assert [(tensor.name, tensor.how, tensor.shape) for tensor in recorded.tensors] == [("x", "normal", (32, 64))]
    assert "2.0" in recorded.arguments
    candidate = pytest_benchmark.Candidate(tmp_path / "out", **problem.candidates["quick"], arguments=build(None, {}))
    candidate.arguments = {"args": [Slot("x")], "kwargs": {"scale": 2.0}}
    candidate.prepare({}, {})
    rows = torch.randn(32, 64)
    assert torch.allclose(candidate.run(x=rows), rows.sum(0) * 2, atol=1e-4)
    written = writing.files(problem, recorded)
    assert "REQUIRES = ('pytest',)" in written["optimized_total_quick.py"]


def test_tests_are_grouped_and_what_has_no_inputs_names_the_plugin(tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"test_many": GROUPS})
    problems = {problem.name: problem for problem in formats.find(folder / "test_many.py", None, (), {})}
    assert {name: list(problem.candidates) for name, problem in problems.items()} == {
        "many_loop": ["numpy"],
        "many_text": [],
        "many_alone": [],
    }
    assert record(problems["many_alone"], tmp_path / "out").tensors[0].how == "uniform"
    with pytest.raises(BenchmarkError, match="takes no tensors"):
        record(problems["many_text"], tmp_path / "text")
    assert "pytest FILE --aisp" in (pytest_benchmark.Reference.otherwise or "")


def test_a_candidate_file_answers_the_test_of_its_name(tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"test_many": GROUPS})
    mine = "import numpy as np\ndef test_alone(benchmark):\n    benchmark(np.sort, np.zeros(64))\n"
    other = support.write(tmp_path / "mine", {"mine": mine}) / "mine.py"
    (problem,) = formats.find(folder / "test_many.py", None, [other], {})
    assert (problem.name, list(problem.candidates)) == ("many_alone", ["mine_alone"])


def test_a_test_that_cannot_run_here_says_why(tmp_path: Path) -> None:
    broken = "import not_installed_here\nimport pytest\n\n\n@pytest.fixture\ndef rows():\n    return 1\n"
    (problem,) = formats.find(project(tmp_path / "in", broken) / "test_total.py", None, (), {})
    with pytest.raises(BenchmarkError, match="not_installed_here") as caught:
        record(problem, tmp_path / "out")
    assert caught.value.code == "NO_BENCHMARK_CALL"


def test_files_of_the_users_own_sessions_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its default folder the session would delete them, and wait for that."""
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))
    garbage = tmp_path / f"pytest-of-{getpass.getuser()}" / "garbage-of-a-session"
    garbage.mkdir(parents=True, mode=0o700)
    garbage.parent.chmod(0o700)
    rows = (
        "import numpy\nimport pytest\n\n\n@pytest.fixture\ndef rows(tmp_path):\n    numpy.save(tmp_path / 'a', [1.0])\n"
    )
    rows += "    return numpy.load(tmp_path / 'a.npy', mmap_mode='c')\n"
    (problem,) = formats.find(project(tmp_path / "in", rows) / "test_total.py", None, (), {})
    assert record(problem, tmp_path / "out").tensors
    assert garbage.is_dir()
