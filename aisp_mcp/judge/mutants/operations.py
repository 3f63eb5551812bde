"""The torch calls of a program, and changes of one of them: results that a cheaper program might compute instead.

A change takes the call and returns another result of the same shape, or raises Inapplicable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Site:
    """One torch call of a run: its number, counted from 0, and its function's name."""

    number: int
    name: str


@dataclass(frozen=True)
class TorchCall:
    """A call as a change sees it. result: the function's own result for these arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def result(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def with_first(self, value: Any) -> Any:
        """The result for another first argument."""
        if self.args:
            return self.function(value, *self.args[1:], **self.kwargs)
        return self.function(**{**self.kwargs, "input": value})

    @property
    def first(self) -> Any:
        return self.args[0] if self.args else self.kwargs.get("input")

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def visit(run: Callable[[], Any], see: Callable[[int, TorchCall], Any]) -> Any:
    """Run with every torch call replaced by what `see` returns for its number and itself."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Visiting(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        count = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            number, self.count = self.count, self.count + 1
            return see(number, TorchCall(_name(func), func, tuple(args), kwargs or {}))

    with torch.no_grad() if not torch.is_grad_enabled() else torch.enable_grad(), Visiting():
        return run()


def _name(function: Any) -> str:
    """The name without the underscores of an operator or an in-place variant: `add` for `__iadd__` and `add_`."""
    name = str(getattr(function, "__name__", "")).strip("_")
    return {
        "iadd": "add",
        "radd": "add",
        "isub": "sub",
        "imul": "mul",
        "rmul": "mul",
        "itruediv": "div",
        "truediv": "div",
        "rtruediv": "rdiv",
        "rsub": "rsub",
        "rmatmul": "matmul",
    }.get(name, name)


SAMPLED = (2, 4, 16)
BLOCK = 8  # 1 / the skipped part of a reduction
PRODUCTS = {"matmul", "mm", "bmm", "linear", "mv", "dot", "addmm"}
REDUCTIONS = {"sum", "mean", "var", "std", "norm", "logsumexp", "amax", "amin", "prod", "nansum", "nanmean", "median"}
NORMS = {"layer_norm", "rms_norm"}
SOFTMAXES = {"softmax", "log_softmax"}
TERMS = {"add", "sub", "mul", "div"}
STEPS = {
    "relu",
    "clamp",
    "clamp_min",
    "abs",
    "masked_fill",
    "tril",
    "triu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "dropout",
    "roll",
    "flip",
    "sort",
    "round",
    "floor",
    "sqrt",
    "rsqrt",
    "square",
    "exp",
    "neg",
}
SWAPS = {
    "mean": ("median", "nanmean"),
    "median": ("mean",),
    "sum": ("nansum",),
    "amax": ("mean",),
    "var": ("biased",),
    "std": ("biased",),
}
NAN_AWARE = {"nanmean", "nansum", "nanmedian", "nan_to_num", "isnan", "isfinite", "fmax", "fmin"}
DRAWS = {"rand", "randn", "rand_like", "randn_like", "bernoulli", "uniform", "normal", "exponential"}
NARROWER = {"float64": "float32", "float32": "bfloat16", "float16": "float8_e5m2", "bfloat16": "float8_e4m3fn"}

Change = Callable[[TorchCall], Any]


NAN = "treat NaN as a number"


class Inapplicable(Exception):
    """The change does not apply to this call."""


def changes(name: str) -> list[tuple[str, Change]]:
    """(kind, change) for a function's name."""
    kinds: list[tuple[str, Change]] = []
    if name in REDUCTIONS | NORMS | SOFTMAXES | PRODUCTS | {"cross_entropy"}:
        kinds += [(f"sample 1 of {k}", partial(_reduced, standing=partial(_sample, k=k))) for k in SAMPLED]
        kinds += [("skip a block", partial(_reduced, standing=_without_block)), ("lower precision", _narrow)]
    if name in TERMS:
        kinds += [("drop a term", partial(_operand, 0)), ("drop a term", partial(_operand, 1))]
    if name in STEPS:
        kinds.append(("drop a step", partial(_operand, 0)))
    if name in {"scaled_dot_product_attention"} | STEPS:
        kinds.append(("lower precision", _narrow))
    if name == "scaled_dot_product_attention":
        kinds.append(("skip a block", _fewer_keys))
    kinds += [("swap statistics", partial(_swapped, other)) for other in SWAPS.get(name, ())]
    if name in NAN_AWARE:
        kinds.append((NAN, _plain))
    if name in {"linear", "addmm", "conv1d", "conv2d", "conv3d", "layer_norm"}:
        kinds.append(("drop a term", _without_bias))
    if name in DRAWS:
        kinds += [("recycle draws", _mirrored), ("recycle draws", _Again())]
    return kinds


def _tensor(value: Any) -> Any:
    """The value, if it is a floating-point tensor with elements. Raises Inapplicable."""
    import torch

    if not (isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()):
        raise Inapplicable
    return value


def _sample(count: int, k: int) -> list[int]:
    """For each of `count` elements, the index of its representative."""
    if count < 2 * k:
        raise Inapplicable
    return [index - index % k for index in range(count)]


def _without_block(count: int) -> list[int]:
    """The last elements are represented by the first."""
    if count < 2 * BLOCK:
        raise Inapplicable
    used = count - count // BLOCK
    return [index if index < used else index - used for index in range(count)]


def _reduced(call: TorchCall, standing: Callable[[int], list[int]]) -> Any:
    """The reduction over fewer elements, each representing several."""
    import torch

    x = _tensor(call.first)
    if call.name in PRODUCTS:
        return _product(call, standing)
    if call.name == "cross_entropy":
        return _cross_entropy(call, standing)
    if call.name in NORMS:
        shape = call.argument(1, "normalized_shape")
        dims = [-1 - at for at in range(len([shape] if isinstance(shape, int) else shape))]
        return _normalised(call, x, _standing(x, dims[0], standing), dims)
    dim = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 and call.name != "norm" else None)
    if call.name == "norm":
        dim = call.argument(2, "dim")
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    if not dims or not all(isinstance(dim, int) for dim in dims):
        raise Inapplicable
    fewer = _standing(x, dims[-1], standing)
    if call.name in SOFTMAXES:
        log = x - torch.logsumexp(fewer, dims[-1], keepdim=True)
        return (log if call.name == "log_softmax" else log.exp()).to(call.result().dtype)
    return call.with_first(fewer)


def _standing(x: Any, dim: int, standing: Callable[[int], list[int]]) -> Any:
    import torch

    if not x.ndim:
        raise Inapplicable
    return x.index_select(dim, torch.tensor(standing(x.shape[dim]), device=x.device))


def _normalised(call: TorchCall, x: Any, fewer: Any, dims: list[int]) -> Any:
    """The normalisation with statistics of fewer elements."""
    weight, bias, wide = call.argument(2, "weight"), None, fewer.double()
    eps = call.argument(3 if call.name == "rms_norm" else 4, "eps", 1e-5) or 1e-5
    if call.name == "layer_norm":
        bias, mean = call.argument(3, "bias"), wide.mean(dims, keepdim=True)
        out = (x - mean) / (wide.var(dims, keepdim=True, correction=0) + eps).sqrt()
    else:
        out = x / (wide.square().mean(dims, keepdim=True) + eps).sqrt()
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype)


def _product(call: TorchCall, standing: Callable[[int], list[int]]) -> Any:
    """The product over fewer inner elements, scaled up to the full number."""
    import torch

    index = 1 if call.name == "addmm" else 0
    x = _tensor(call.args[index] if len(call.args) > index else None)
    used = sorted(set(standing(x.shape[-1])))
    mask = torch.zeros(x.shape[-1], dtype=x.dtype, device=x.device)
    mask[used] = x.shape[-1] / len(used)
    return call.function(*call.args[:index], x * mask, *call.args[index + 1 :], **call.kwargs)


def _cross_entropy(call: TorchCall, standing: Callable[[int], list[int]]) -> Any:
    import torch

    x, target = _tensor(call.first), call.argument(1, "target")
    options = {"weight", "ignore_index", "label_smoothing"} & set(call.kwargs)
    if x.ndim != 2 or target.ndim != 1 or options:
        raise Inapplicable
    losses = torch.logsumexp(_standing(x, 1, standing), 1) - x.gather(1, target[:, None])[:, 0]
    how = call.kwargs.get("reduction", "mean")
    return losses if how == "none" else losses.mean() if how == "mean" else losses.sum()


def _narrow(call: TorchCall) -> Any:
    """The call with its operands rounded to the next narrower type."""
    import torch

    if not isinstance(call.first, torch.Tensor):
        raise Inapplicable

    def rounded(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        narrow = NARROWER.get(str(value.dtype).removeprefix("torch."))
        return value.to(getattr(torch, narrow)).to(value.dtype) if narrow else value

    return call.function(*map(rounded, call.args), **{name: rounded(value) for name, value in call.kwargs.items()})


def _operand(index: int, call: TorchCall) -> Any:
    """The operand instead of the result, if it has the result's type and shape."""
    import torch

    if len(call.args) <= index:
        raise Inapplicable
    value, result = call.args[index], call.result()
    fits = isinstance(value, torch.Tensor) and isinstance(result, torch.Tensor)
    if not fits or (value.shape, value.dtype) != (result.shape, result.dtype) or value is result:
        raise Inapplicable
    return value.clone()


def _without_bias(call: TorchCall) -> Any:
    index, name = {"addmm": (0, "input"), "layer_norm": (3, "bias")}.get(call.name, (2, "bias"))
    bias = call.argument(index, name)
    if bias is None:
        raise Inapplicable
    return call.result() - bias if call.name != "conv2d" else call.result() - bias.view(-1, 1, 1)


def _swapped(other: str, call: TorchCall) -> Any:
    """Another statistic of the same elements."""
    import torch

    x = _tensor(call.first)
    if other == "biased":
        dim = call.argument(1, "dim")
        dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        count = math.prod(x.shape[dim] for dim in dims)
        share = (count - 1) / max(count, 1)
        return call.result() * (share if call.name == "var" else math.sqrt(share))
    result = getattr(torch, other)(*call.args, **call.kwargs)
    return result if isinstance(result, torch.Tensor) else result.values


def _plain(call: TorchCall) -> Any:
    """The function's result if there were no NaN."""
    import torch

    x = _tensor(call.first)
    if call.name.startswith("nan_"):
        return x.clone()
    if call.name.startswith("is"):
        return torch.full_like(x, call.name == "isfinite", dtype=torch.bool)
    other = {"fmax": "maximum", "fmin": "minimum"}.get(call.name, call.name.removeprefix("nan"))
    return getattr(torch, other)(*call.args, **call.kwargs)


def _fewer_keys(call: TorchCall) -> Any:
    """Attention without the last keys."""
    query, key, value, *rest = call.args
    count = key.shape[-2] - key.shape[-2] // BLOCK
    if count == key.shape[-2] or rest or call.kwargs.get("attn_mask") is not None:
        raise Inapplicable
    return call.function(query, key[..., :count, :], value[..., :count, :], **call.kwargs)


def _mirrored(call: TorchCall) -> Any:
    """Half of a draw, followed by its reverse."""
    drawn = _tensor(call.result())
    flat = drawn.reshape(-1)
    half = flat.numel() // 2
    flat[flat.numel() - half :] = flat[:half].flip(0)
    return flat.view(drawn.shape)


class _Again:
    """The first draw in every call."""

    def __init__(self) -> None:
        self._first: Any = None

    def __call__(self, call: TorchCall) -> Any:
        drawn = _tensor(call.result())
        if self._first is None or self._first.shape != drawn.shape:
            self._first = drawn.clone()
        return self._first.clone()
