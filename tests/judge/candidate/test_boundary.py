"""The trust boundary: what of this package a candidate finds in its own process.

Each candidate raises in its first call and names the modules that it found, so every comparison ends there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_support import LEAST, PRODUCT, write_pair

from aisp_mcp.judge.comparison import compare, keep_libraries_loaded, loaded_in
from aisp_mcp.judge.functions import pair as function_pairs
from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.validity import issues

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="2 ranks need 2 cores")
COLD = PRODUCT.replace("n = 128", "goal, cold, n = 'cold', 'process', 8")
COMMON = """
from torch import nn

Model = lambda: nn.Linear(4, 2)

def loss(model, x, labels):
    return nn.functional.cross_entropy(model(x), labels)
"""
EXACT = """
    import torch
    from _common import Model, loss
    from aisp_mcp.bench import Work
    from aisp_mcp.bench.training import TrainingBenchmark

    class Steps(TrainingBenchmark):
        rows, steps = 8, 2
        def model(self):
            return Model()
        def task(self, rng):
            return {}
        def batch(self, rng):
            x = rng.randn(self.rows, 4)
            return {"x": x, "labels": (x[:, 0] > 0).long()}
        def loss(self, model, x, labels):
            return loss(model, x, labels)
        def optimizer(self, parameters):
            return torch.optim.AdamW(parameters, lr=1e-2, foreach=False)
        def work(self):
            return Work(flops=1e6, bytes=1e6, items=16, unit="samples")
"""
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""

ALLOWED = ("candidate", "protocol", "native")  # of the judge, besides what benchmark authors import
BEYOND = f"""
def beyond():
    import sys
    ours = [name for name in sys.modules if name.startswith("aisp_mcp.")]
    allowed = ("aisp_mcp.bench.", *("aisp_mcp.judge." + part + "." for part in {ALLOWED}))
    known = [name for name in ours if name == "aisp_mcp.judge" or (name + ".").startswith(allowed)]
    other = sorted(name.removeprefix("aisp_mcp.") for name in set(ours) - set(known))
    return f"{{len(known) > 3}} beyond: {{' '.join(other)}}."
"""
TELL = f"{BEYOND}\ndef tell():\n    raise RuntimeError(beyond())\n"
# Of the programs that fork candidates, a fork forgets what isolated it.
EVERY = f"""{BEYOND}
import importlib, pkgutil, sys
from aisp_mcp.judge import candidate
names = [each.name for each in pkgutil.walk_packages(candidate.__path__, "aisp_mcp.judge.candidate.")]
modules = {{name: importlib.import_module(name) for name in names if not name.endswith(".triton_key")}}
modules["aisp_mcp.judge.candidate.forks"]._forget_isolation()
print(len(modules) > 15, beyond())
"""
# The interpreter's own functions are found in the process that has loaded the library.
NATIVE = """/* Runs the same check in the interpreter around it.

launch:
  function: product
  arguments: [a, b, out, "a.shape[0]"]
  outputs: {out: {shape: ["a.shape[0]", "a.shape[0]"], dtype: float32}}
*/
#include <dlfcn.h>
#include <cstdint>

extern "C" int product(const float*, const float*, float*, int64_t) {
    auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    auto release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    auto run = (int (*)(const char*))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    int state = ensure();
    int failed = run(R"(TELL
try:
    tell()
except RuntimeError as error:
    assert "True beyond: ." in str(error), error
)");
    release(state);
    return failed;  // and otherwise an output that is not a product
}
"""


def ended(pair: Pair, folder: Path) -> Flag:
    """The flag that ended the comparison."""
    comparison = compare(pair, Options(LEAST, "small", "cpu", folder))
    assert isinstance(comparison, Comparison)
    (flag,) = [flag for flag in comparison.flags if flag.severity == "fatal"]
    return flag


def found(pair: Pair, folder: Path) -> str:
    """The candidate's words about its process."""
    flag = ended(pair, folder)
    assert flag.code == "incorrect_raised"
    return flag.message


def candidate(folder: Path, text: str, baseline: str | None = None) -> Pair:
    return write_pair(folder, TELL + text, *([baseline] if baseline else []))


def a_pair(folder: Path) -> Pair:
    return candidate(folder, "def run(a, b):\n    tell()\n")


def two_files(folder: Path) -> Pair:
    (folder / "slow.py").write_text("def double(x):\n    return x + x\n")
    (folder / "fast.py").write_text(TELL + "def double(x):\n    tell()\n")
    request = Request(str(folder / "slow.py:double"), str(folder / "fast.py:double"), "x=randn(100)")
    return function_pairs.write(function_pairs.plan(request), folder / "pair")


def ranks(folder: Path) -> Pair:
    return candidate(folder, "def run(share):\n    tell()\n", issues.baseline("two_ranks"))


def serving(folder: Path) -> Pair:
    return candidate(folder, "def serve(feed, emit, **params):\n    tell()\n", issues.baseline("serve_small"))


def training(folder: Path) -> Pair:
    (folder / "_common.py").write_text(COMMON)
    return candidate(folder, "def run(**tensors):\n    tell()\n", EXACT)


def cold(folder: Path) -> Pair:
    """A candidate whose process is a new one, not a fork."""
    return candidate(folder, "def run(a, b):\n    tell()\n", COLD)


KINDS = [a_pair, two_files, pytest.param(ranks, marks=TWO_CORES), serving, training, cold]


@pytest.mark.parametrize("kind", KINDS)
def test_a_candidate_finds_no_trusted_module_in_its_process(kind: Callable[[Path], Pair], tmp_path: Path) -> None:
    assert "True beyond: ." in found(kind(tmp_path), tmp_path)


def test_nor_does_an_adapted_one(cli_here: Any, tmp_path: Path, recorded_here: None) -> None:
    problem, mine = tmp_path / "it.py", tmp_path / "mine.py"
    problem.write_text(PROBLEM.format(body="return 2 * x"))
    mine.write_text(TELL + PROBLEM.replace("Model(", "ModelNew(").format(body="tell()"))
    words = (problem, "--to", tmp_path / "out", "--allow-write", tmp_path, "--candidates", mine)
    cli_here("bench", "adapt", *map(str, words))
    (chapter,) = (tmp_path / "out").iterdir()
    (path,) = chapter.glob("optimized_*.py")
    assert "True beyond: ." in found(Pair("t:it", chapter / "baseline_it.py", "mine", path), tmp_path)


def test_nor_does_any_module_beside_a_candidate_import_one() -> None:
    """As those of the other formats of adapted problems."""
    done = subprocess.run([sys.executable, "-c", EVERY], capture_output=True, text=True, check=True)
    assert done.stdout == "True True beyond: .\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_nor_does_compiled_code(tmp_path: Path) -> None:
    pair, source = candidate(tmp_path, ""), tmp_path / "optimized_product.cpp"
    source.write_text(NATIVE.replace("TELL", TELL))
    flag = ended(replace(pair, path=source), tmp_path)
    assert flag.code in ("incorrect_output", "incorrect_unwritten"), flag.message  # and so it has not raised


def test_nor_does_a_fork_of_libraries_kept_loaded(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    if not keep_libraries_loaded(Options(LEAST, "small", "cpu", tmp_path), kept, 600):
        pytest.skip("needs namespaces")
    try:
        with loaded_in(kept):
            assert "True beyond: ." in found(a_pair(tmp_path), tmp_path)
    finally:
        shutil.rmtree(kept)
