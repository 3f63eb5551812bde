"""Rounding errors of sums in other orders, computed from the terms that they add."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

BY_NORM = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution")  # sums of products
SCANS = ("cumsum", "cumprod", "logcumsumexp", "_softmax", "_log_softmax")
# Honest programs add up to FEW_TERMS in one lane, and more in the lanes of a vector register, with MOST_TERMS in each:
# longer lanes lose too much. Roundings of less than LEAST_TERMS hardly add up. MOST_ORDERED bounds memory and time.
LEAST_TERMS, FEW_TERMS, LANES, MOST_TERMS, MOST_ORDERED = 1 << 10, 1 << 13, 8, 1 << 15, 1 << 26
LONG, STEP = 1 << 17, 1 << 6  # terms of a row that is scanned in steps, and of a step
# The library computes these in one operation, other programs step by step, with a rounding after each step. So they are
# evaluated step by step here, and the sums among the steps show what they add.
COMPOSITES = (
    *("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("linalg_vector_norm", "native_layer_norm", "native_group_norm", "native_batch_norm", "std", "std_mean"),
)


def steps(func: Any) -> Callable[..., Any] | None:
    """The operation as a function of smaller ones, or None for operations that are not decomposed."""
    from torch._decomp import decomposition_table

    name = func.overloadpacket.__name__
    if name == "var_mean":
        return _variance_and_mean
    decomposition: Callable[..., Any] | None = decomposition_table.get(func) if name in COMPOSITES else None
    return decomposition


def _variance_and_mean(values: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The library's own steps hide the variance in an operation of its compiler."""
    variance = values.var(*args, **kwargs)
    dims = _dims((values, *args)) or list(range(values.ndim))
    mean = values.mean(dims, keepdim=variance.ndim == values.ndim)
    return variance, mean


def length(name: str, value: Any, given: Sequence[Any]) -> float:
    """Number of terms summed into one element of the result, judged from shapes. given: tensors among arguments."""
    if not given:
        return 1.0
    if name in ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"):
        return float(given[-1].shape[-2 if given[-1].ndim > 1 else 0])
    if name == "convolution":
        return float(given[1][0].numel())
    if name.startswith("nll_loss"):
        return float(given[1].numel())
    if name in SCANS and given[0].ndim:
        return float(max(given[0].shape))
    most = max(tensor.numel() for tensor in given)
    return float(max(most / value.numel(), 1.0))


def size(name: str, args: Any, kwargs: Any) -> Any:
    """The size of what is rounded on the way to each element of a result, if known; else None.

    Of a sum, its largest partial sum. Of a variance, the mean square, because it may be computed as the mean square
    less the squared mean.
    """
    import torch

    op: Any = getattr(torch.ops.aten, name, None)  # None for operations of other libraries
    given = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not given or any(tensor.dtype != torch.float64 for tensor in given):
        return None
    if name in BY_NORM:
        squares = [arg.square() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return op(*squares, **kwargs).sqrt()
    if name == "var":
        return given[0].square().mean(_dims(args), bool(kwargs.get("keepdim", args[3:4] == (True,))))
    if name == "cumsum" and not kwargs:
        return op(given[0], args[1]).abs_().cummax(args[1]).values
    terms = _terms(name, args, kwargs)
    return None if terms is None else _largest_partial_sum(terms)


def _largest_partial_sum(terms: Any) -> Any:
    """Its size along the last dimension; of many terms, at the ends of steps, since a scan of a long row is slow."""
    width, step = terms.shape[-1], STEP if terms.shape[-1] >= LONG else 1
    whole = terms[..., : width // step * step].unflatten(-1, (-1, step)).sum(-1) if step > 1 else terms
    partial = whole.cumsum(-1).abs_().amax(-1)
    return partial.maximum(terms.sum(-1).abs_()) if width % step else partial


def error_in_order(name: str, args: Any, kwargs: Any) -> Any:
    """Signed errors of the elements of a sum or mean whose terms are added one by one in float32, in lanes if there are
    many; None for other operations.

    Terms that are small compared with the partial sum lose the same part each, so their roundings do not average out.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    terms = _terms(name, args, kwargs)
    if terms is None or terms.numel() > MOST_ORDERED or (width := terms.shape[-1]) < LEAST_TERMS:
        return None
    lanes = 1 if width <= FEW_TERMS else max(LANES, math.ceil(width / MOST_TERMS))
    with _disable_current_modes():  # which compute in float64
        columns = terms.reshape(-1, width).T.to("cpu", torch.float32)
        sums = torch.zeros(lanes, columns.shape[1], dtype=torch.float32)
        # On a CPU, this function adds in the order of the index.
        sums.squeeze(-1).index_add_(0, torch.arange(width) % lanes, columns.squeeze(-1))
    return (sums.double().sum(0) - columns.double().sum(0)).reshape(terms.shape[:-1]).to(terms.device)


def _terms(name: str, args: Any, kwargs: Any) -> Any:
    """Return the terms of each element of a sum or mean of float64 numbers, along the last dimension, or None."""
    import torch

    if name not in ("sum", "mean") or kwargs or not args[0].numel() or args[0].dtype != torch.float64:
        return None
    values = args[0] if args[0].ndim else args[0].reshape(1)
    dims = sorted(dim % values.ndim for dim in _dims(args) or range(values.ndim))
    remaining = [dim for dim in range(values.ndim) if dim not in dims]
    rows = values.permute(*remaining, *dims).flatten(len(remaining))
    rows = rows / rows.shape[-1] if name == "mean" else rows
    if args[2:3] == (True,):
        rows = rows.reshape(*(1 if dim in dims else values.shape[dim] for dim in range(values.ndim)), rows.shape[-1])
    return rows


def _dims(args: Any) -> list[int] | None:
    """The dimensions that a reduction is given, None for all."""
    given = args[1] if len(args) > 1 else None
    return [given] if isinstance(given, int) else list(given) if given is not None and len(given) else None
