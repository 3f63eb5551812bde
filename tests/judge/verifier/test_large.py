"""Outputs of gigabytes are compared in pieces, with distances in float32: tried with small limits for both."""

from __future__ import annotations

from typing import Any

import pytest

from aisp_mcp.bench import Tolerance
from aisp_mcp.judge.verifier.checks import pieces, tolerance
from aisp_mcp.judge.verifier.inputs import bank

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> Any:
    def patch() -> None:
        monkeypatch.setattr(pieces, "CPU_PIECE", 100)
        monkeypatch.setattr(tolerance, "LARGE", 1000)

    return patch


def outputs(error: float) -> tuple[Any, Any, Any]:
    """Of a candidate with an error of that share, the baseline, and the reference."""
    draw = torch.Generator().manual_seed(1)
    exact = torch.randn(40, 50, dtype=torch.float64, generator=draw)
    return (exact * (1.0 + error * torch.randn(40, 50, generator=draw))).float(), exact.float(), exact


@pytest.mark.parametrize("error", [0.0, 1e-7, 1e-5, 1e-2])
def test_the_same_is_found(as_large: Any, error: float) -> None:
    out, base, ref = outputs(error)

    def found() -> tuple[float, bool, bool]:
        ratio, failure = tolerance.compare(out, base, ref, Tolerance())
        return ratio, failure is None, tolerance.near(out, base, Tolerance())

    whole = found()
    as_large()
    in_pieces = found()
    assert in_pieces == (pytest.approx(whole[0], rel=1e-5), *whole[1:])
    assert whole[1] == (error < 1e-6)


def test_distances_of_other_orders_are_the_same(as_large: Any) -> None:
    out, _, ref = outputs(1e-5)
    [whole] = bank._largest([ref], [[out]])
    as_large()
    [in_pieces] = bank._largest([ref], [[out]])
    assert (whole.dtype, in_pieces.dtype) == (torch.float64, torch.float32)
    assert torch.allclose(in_pieces.double(), whole, rtol=1e-6, atol=0.0)


class Subtractions(TorchDispatchMode):
    """Counts them."""

    count = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "aten.sub" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("changed", [None, 0, 1999], ids=["no element", "the first one", "the last one"])
def test_large_outputs_with_equal_bits_need_no_distances(as_large: Any, changed: int | None) -> None:
    _, base, _ = outputs(0.0)
    out = base.clone()
    if changed is not None:
        out.view(-1)[changed] += 1.0
    as_large()
    with Subtractions() as found:
        assert tolerance.near(out, base, Tolerance()) == (changed is None)
    assert bool(found.count) == (changed is not None)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_equal_outputs_that_are_not_finite_need_the_reference(as_large: Any, value: float) -> None:
    _, base, _ = outputs(0.0)
    base[3, 4] = value
    as_large()
    assert not tolerance.near(base.clone(), base, Tolerance())
