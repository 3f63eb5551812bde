"""Baselines that return memory of their own again in later calls, as many optimised programs do."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import judge

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]
SPECIFICATION = """
import torch
from aisp_mcp.bench import Benchmark
class Products(Benchmark):
    turn = 0
    def inputs(self, rng):
        return {"x": 1.0 + 0.01 * rng.randn(64, 512)}
    def setup(self, params, device):
        return self.run
    def run(self, x):
        if not hasattr(self, "buffers"):
            self.buffers = [torch.empty(BUFFER) for _ in range(BUFFERS)]
        self.turn = (self.turn + 1) % BUFFERS
        return torch.cumprod(x, dim=1, out=self.buffers[self.turn]VIEW)
    def reference(self, x):
        return torch.cumprod(x, dim=1)
"""
RIGHT = "import torch\ndef run(x):\n    return torch.cumprod(x, dim=1)\n"
OF_THE_LAST_CALL = """
import torch
last = None
def run(x):
    global last
    new = torch.cumprod(x, dim=1)
    old, last = last, new
    return new if old is None else old
"""


@pytest.mark.parametrize(
    ("buffers", "shape", "view"),
    [(1, "64, 512", ""), (2, "64, 512", ""), (1, "64, 520", "[:, :512]")],
    ids=["one", "two in turn", "a part of one"],
)
@pytest.mark.parametrize("accepted", [True, False], ids=["right", "of the last call"])
def test_baseline_may_return_its_own_memory_again(
    tmp_path: Path, buffers: int, shape: str, view: str, accepted: bool
) -> None:
    baseline = SPECIFICATION.replace("BUFFERS", str(buffers)).replace("BUFFER", shape).replace("VIEW", view)
    comparison = judge(tmp_path, RIGHT if accepted else OF_THE_LAST_CALL, baseline)
    assert (comparison.verdict.value != "incorrect") == accepted, comparison.sentence
