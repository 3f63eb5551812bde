"""Refusal of calls that write several values to one element: which of them stays is undefined, and depends on the order
in which threads run. A right candidate could be called wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.errors import BenchmarkError


def watched(program: Callable[[], Any]) -> Any:
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
