"""Distance between the outputs of two calls with the same inputs.

Atomic additions, as in some of cuDNN's transposed convolutions, add in another order each time. Their outputs differ by
rounding, which is part of the baseline's own error, the judge's unit. Dropout and other draws differ by far more.
"""

from __future__ import annotations

import math
from typing import Any

MOST = 1e-2  # of 16-bit types, whose root of an eps is larger


def distance(one: Any, other: Any) -> float:
    """Root-mean-square difference as a share of the output's size; 0 if they are as close as allclose() demands, inf if
    shapes, integers or the places of NaN differ.
    """
    import torch

    if one.shape != other.shape:
        return math.inf
    if torch.allclose(one, other, equal_nan=True):
        return 0.0
    if not (one.is_floating_point() or one.is_complex()) or not torch.equal(one.isfinite(), other.isfinite()):
        return math.inf
    size = float(_norm(other.where(other.isfinite(), 0.0)))
    return float(_norm((one - other).where(other.isfinite(), 0.0))) / size if size > 0.0 else math.inf


def is_rounding(share: float, dtype: Any) -> bool:
    """Return True if rounding in that type explains this distance."""
    import torch

    is_wide = dtype.is_floating_point or dtype.is_complex
    return share == 0.0 or (is_wide and share <= min(math.sqrt(torch.finfo(dtype).eps), MOST))


def note(shares: list[float]) -> list[str]:
    """The sentence that discloses it; none if the outputs are the same."""
    most = max(shares, default=0.0)
    return (
        [f"two calls with the same inputs differ by {most:.1g} of their outputs' size, as rounding does"]
        if most
        else []
    )


def _norm(values: Any) -> Any:
    import torch

    return torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
