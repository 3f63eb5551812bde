"""Two replicates have device memory at a time if there is room for both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.verifier.frames import replicates_at_once

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
GIB = 1 << 30


@pytest.mark.parametrize(
    ("static_gib", "call_gib", "peak_gib", "number"),
    [
        (0.0, 0.3, 7.0, 2),
        (2.5, 2.6, 20.0, 1),  # a perceptron's weights, which the baseline's module copies
        (0.3, 8.0, 18.0, 1),  # intermediate results of a convolution
    ],
)
def test_two_replicates_need_room_for_six_workers(
    monkeypatch: pytest.MonkeyPatch, static_gib: float, call_gib: float, peak_gib: float, number: int
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (78 * GIB, 79 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: GIB)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: int(peak_gib * GIB))
    weights = TensorSpec("weights", "uint8", (int(static_gib * GIB),), (1,), 1)
    layout = Layout((weights,), (), (TensorSpec("out", "uint8", (GIB // 8,), (1,), 1),), 8)
    assert replicates_at_once("cuda", layout, int(call_gib * GIB)) == number
    assert replicates_at_once("cuda", replace(layout, tight=True), 0) == 1
    assert replicates_at_once("cpu", layout, int(call_gib * GIB)) == 2
