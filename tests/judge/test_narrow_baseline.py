"""Baselines that compute in TF32, as convolutions on a GPU do: what their errors excuse in a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import judge

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
ROUNDED = """
def rounded(x):
    return x.view(torch.int32).add(1 << 12).bitwise_and(-1 << 13).view(torch.float32)
"""
BASELINE = f"""
import torch
from aisp_mcp.bench import Benchmark
{ROUNDED}
class Product(Benchmark):
    def inputs(self, rng):
        return {{"a": rng.randn(128, 128), "b": rng.randn(128, 128)}}
    def run(self, a, b):
        return rounded(a) @ rounded(b)
    def reference(self, a, b):
        return a @ b
"""


@pytest.mark.parametrize(
    ("product", "accepted"),
    [
        ("a @ b", True),
        ("(rounded(b).mT @ rounded(a).mT).mT", True),
        ("a.bfloat16().float() @ b.bfloat16().float()", False),
    ],
    ids=["float32", "TF32", "bfloat16"],
)
def test_tf32_excuses_no_bfloat16(tmp_path: Path, product: str, accepted: bool) -> None:
    comparison = judge(tmp_path, f"import torch\n{ROUNDED}\ndef run(a, b):\n    return {product}\n", BASELINE)
    assert (comparison.verdict.value != "incorrect") == accepted, comparison.sentence
