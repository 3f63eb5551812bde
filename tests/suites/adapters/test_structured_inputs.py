"""Inputs whose structure a candidate may use: large ones, too, are drawn by the problem's own code."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.suites.adapters.recording.distributions import fit  # noqa: E402

pytestmark = [pytest.mark.torch]


@pytest.mark.parametrize("size", [64, 2100])  # the larger one is too large for all of its rows to be examined
@pytest.mark.parametrize(
    ("structure", "how"),
    [
        (torch.triu, "recipe"),
        (torch.tril, "recipe"),
        (lambda x: x + x.mT, "recipe"),
        (lambda x: x, "normal"),
        (lambda x: x.to(torch.float8_e4m3fn), "normal"),
    ],
    ids=["upper triangular", "lower triangular", "symmetric", "none", "narrow"],
)
def test_a_structured_matrix_is_not_replaced_by_random_numbers(size: int, structure: Any, how: str) -> None:
    first, other = (structure(torch.randn(size, size)) for _ in range(2))
    assert fit(first, other)[0] == how
