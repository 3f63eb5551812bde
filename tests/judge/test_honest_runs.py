"""Whole comparisons of honest programs, and of programs that this machine cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from harness_support import HONEST, LEAST, PRODUCT, judge, write_pair

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records import Skip

pytestmark = [pytest.mark.torch]
IN_PLACE = '''
    """Exponentials, where the data lie or elsewhere."""
    from aisp_mcp.bench import Benchmark
    class Product(Benchmark):
        in_place = ("x",)
        def inputs(self, rng):
            return {"x": rng.randn(128, 512)}
        def run(self, x):
            return x.exp()
'''
APPROXIMATE = PRODUCT.replace("Benchmark, Work", "Benchmark, Tolerance, Work").replace(
    "n = 128", "n = 128\n        tolerance = Tolerance(approximate=0.01)"
)


def test_an_output_may_lie_in_an_input_that_may_change(tmp_path: Path) -> None:
    found = judge(tmp_path, "def run(x):\n    return x.exp_()\n", IN_PLACE)
    assert not [flag for flag in found.flags if flag.severity == "fatal"]


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("import package_that_nobody_has.part", "the package package_that_nobody_has"),
        ("raise RuntimeError('No CUDA GPUs are available')", "a CUDA device"),
    ],
)
def test_what_a_candidate_lacks_while_it_runs_is_a_skip(tmp_path: Path, body: str, missing: str) -> None:
    pair = write_pair(tmp_path, f"def run(a, b):\n    {body}\n    return a @ b\n")
    skipped = compare(pair, Options(LEAST, "small", "cpu", tmp_path))
    assert isinstance(skipped, Skip)
    assert missing in skipped.missing


def test_a_program_at_the_edge_is_told_so_with_the_inputs_that_show_it(tmp_path: Path) -> None:
    found = judge(tmp_path, "def run(a, b):\n    return (a @ b) * 1.008\n", APPROXIMATE)
    (flag,) = [flag for flag in found.flags if flag.code == "edge_of_tolerance"]
    assert " inputs" in flag.message
    assert ", seed " in flag.message
    assert flag.evidence["share"] == pytest.approx(0.8, abs=0.01)
    assert "edge_of_tolerance" not in [flag.code for flag in judge(tmp_path, HONEST, APPROXIMATE).flags]
