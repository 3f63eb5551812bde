"""Whether the outputs of a problem are determined by its inputs, so that a right candidate has the same.

Atomic additions, as in some of cuDNN's transposed convolutions, add in another order each time. Their outputs differ by
rounding, which is part of the baseline's own error, the judge's unit. Dropout and other draws differ by far more.

If a call writes several values to one element, which of them stays is undefined, and depends on the order in which
threads run. Such calls are refused, because a right candidate could be called wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aisp_mcp.errors import BenchmarkError

_MOST_ROUNDING = 1e-2  # of 16-bit types, whose root of an eps is larger


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
    return share == 0.0 or (is_wide and share <= min(math.sqrt(torch.finfo(dtype).eps), _MOST_ROUNDING))


def rounding_note(shares: list[float]) -> list[str]:
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


def without_overwriting(program: Callable[[], Any]) -> Any:
    """The result of the program. Raises BenchmarkError UNDEFINED_OUTPUT."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watched(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = _dispatch

    with Watched():
        return program()


def _dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
    name = func.overloadpacket.__name__.removesuffix("_")
    is_repeated = _WRITES.get(f"{name}.{func._overloadname}")
    if is_repeated is not None and is_repeated(*args, **(kwargs or {})):
        message = (
            f"The problem writes several values to one element ({name} with repeated indices): any of them could stay."
        )
        hint = "Draw indices that differ, such as torch.randperm(N)[:M], or add the values up."
        raise BenchmarkError("UNDEFINED_OUTPUT", message, hint)
    return func(*args, **(kwargs or {}))


_dispatch.__dict__["__dynamo_disable"] = _dispatch  # or the library imports its compiler, to hide the function from it


def _put(_self: Any, indices: Any, values: Any, accumulate: bool = False) -> bool:
    import torch

    given = [index for index in indices if index is not None]
    if accumulate or values.numel() == 1 or any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return False
    places = torch.stack([index.flatten() for index in torch.broadcast_tensors(*given)])
    return bool(torch.unique(places, dim=1).shape[1] < places.shape[1])


def _copied(_self: Any, _dim: int, index: Any, _source: Any) -> bool:
    return bool(index.unique().numel() < index.numel())


def _scattered(_self: Any, dim: int, index: Any, _src: Any) -> bool:
    ordered = index.sort(dim).values
    length = ordered.shape[dim] if ordered.dim() else 0
    return length > 1 and bool((ordered.narrow(dim, 1, length - 1) == ordered.narrow(dim, 0, length - 1)).any())


_WRITES: dict[str, Callable[..., bool]] = {
    "index_put.default": _put,
    "index_copy.default": _copied,
    "scatter.src": _scattered,
}
