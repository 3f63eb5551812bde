"""Elements that are wrong relative to their own size, beside much larger ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.verifier.checks import pieces  # noqa: E402
from aisp_mcp.judge.verifier.checks.tolerance import count_lost  # noqa: E402

pytestmark = [pytest.mark.torch]
LARGE, SMALL = 100, 50


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-280])
@pytest.mark.parametrize("piece", [1 << 18, 30])
def test_errors_are_compared_with_those_of_elements_of_about_that_size(
    monkeypatch: pytest.MonkeyPatch, scale: float, piece: int
) -> None:
    """The baseline's errors of large elements, which are as large as the small elements, explain none of theirs."""
    monkeypatch.setattr(pieces, "CPU_PIECE", piece)
    ones = torch.ones(LARGE + SMALL, dtype=torch.float64)
    number = torch.arange(LARGE + SMALL)
    small = number >= LARGE
    truth = torch.where(small, 1e-6, ones) * scale * (1 - 2 * (number % 2))
    own = torch.where(small, 1e-13, 1e-6 * ones) * scale
    error = torch.where(small, 2e-7, 1e-6 * ones) * scale
    assert count_lost(error, own, truth, least=0.1, most=4.0) == SMALL
    assert count_lost(error / 1e6, own, truth, least=0.1, most=4.0) == 0
