"""Small pairs for the judge: a baseline, candidates as text, and a preset that takes as little as possible."""

from __future__ import annotations

import textwrap
from pathlib import Path

from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.records.verdict import Comparison

LEAST = Preset("least", 1, 0.0003, 1, max_calls=12, isolated_rounds=1)

PRODUCT = '''
    """A matrix product."""
    from aisp_mcp.bench import Benchmark, Work
    class Product(Benchmark):
        n = 128
        def inputs(self, rng):
            return {"a": rng.randn(self.n, self.n), "b": rng.randn(self.n, self.n)}
        def work(self):
            return Work(flops=2 * self.n**3)
        def run(self, a, b):
            return a @ b
'''
HONEST = "def run(a, b):\n    return a @ b\n"


def write_pair(folder: Path, candidate: str, baseline: str = PRODUCT) -> Pair:
    """The two files of a pair named t:product."""
    base, path = folder / "baseline_product.py", folder / "optimized_product.py"
    base.write_text(textwrap.dedent(baseline))
    path.write_text(textwrap.dedent(candidate))
    return Pair("t:product", base, "", path)


def judge(folder: Path, candidate: str, baseline: str = PRODUCT, preset: Preset = LEAST) -> Comparison:
    """The judge's comparison; fails the test when it is a skip."""
    comparison = compare(write_pair(folder, candidate, baseline), Options(preset, "small", "cpu", folder))
    assert isinstance(comparison, Comparison)
    return comparison
