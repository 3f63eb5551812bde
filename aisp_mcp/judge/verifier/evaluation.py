"""Evaluation of programs in float64, and with the rounding errors of other valid orders of operations.

A mixed-precision baseline contains casts. On float64 inputs it would still round there, and the reference would contain
its rounding: a more precise candidate would be called wrong. So casts and new tensors of a floating-point type become
float64 (complex types: complex128), whatever the program requests, and autocast is off.

The baseline's own error may be small by luck, and where numbers cancel it says nothing about other orders. So the
float64 reference is evaluated again with its inputs, and the result of each operation, off by a rounding. A sum is off
by as much as one computed term by term, whose roundings grow with its partial sums and the square root of its length.
Roundings of one sign do not average out; evaluate_in_order() computes their sum.

PyTorch uses TF32 in convolutions on a GPU unless a program forbids it. The flag only allows it. Whether a convolution
in float32 rounds its operands to TF32 depends on the algorithm that the library picks, and so on the order of
dimensions in memory: a baseline may be precise by chance, and a candidate that asks for `channels_last` is not. Some
algorithms round to the nearest number, others leave the tensor cores to ignore the last bits, and a program that tunes
itself may get either (docs/decisions/0091-allow-tf32-in-convolutions.md).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.shared_memory import NO_DEVICE_MEMORY, UNDESCRIBED
from aisp_mcp.judge.verifier.checks.pieces import pieces

NARROW = ("float32", "float16", "bfloat16")  # 8-bit types stay: they are a contract's quantisation
CONVOLUTIONS = ("convolution", "convolution_backward")
BY_NORM = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution")  # sums of products
SCANS = ("cumsum", "cumprod", "logcumsumexp", "_softmax", "_log_softmax")
# The library computes these in one operation, other programs step by step, with a rounding after each step. So they are
# evaluated step by step here, and the sums among the steps show what they add.
COMPOSITES = (
    *("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("linalg_vector_norm", "native_layer_norm", "native_group_norm", "native_batch_norm", "std", "std_mean"),
)
# Roundings of a sum, as a share of the square root of its number of terms: partial sums grow, and roundings have both
# signs. Chosen; results/cpu-honest.json: no honest order is refused.
ORDERED = 0.5
# Terms. Honest programs add up to FEW_TERMS in one lane, and more in the LANES of a vector register, with at most
# MOST_TERMS in each: longer lanes lose too much. Roundings of fewer than LEAST_TERMS hardly add up. MOST_ORDERED
# elements in all bound memory and time. Chosen (commit 280ea2bf); docs/harness.md, "What is checked".
LEAST_TERMS, FEW_TERMS, LANES, MOST_TERMS, MOST_ORDERED = 1 << 10, 1 << 13, 8, 1 << 15, 1 << 26
# Terms of a row that is scanned in steps, and of a step: a scan of a single long row had taken most of 42 s on an H100.
# docs/decisions/0083-accept-outputs-near-the-baseline.md.
LONG_SCAN, SCAN_STEP = 1 << 17, 1 << 6
# Random numbers of the supply, of eight bytes each, and those drawn one result at a time before there is one. Chosen:
# 32 MiB; less than half is used for one result, so positions differ.
SUPPLY = 1 << 22
FRESH = SUPPLY // 16
MOVES = ("clone", "copy_", "_to_copy", "lift_fresh", "detach", "stack", "cat")  # operations that compute nothing
DROPPED = 13  # bits of a float32 number that TF32 does not have: 23 - 10, by the format

Change = Callable[[Any, Any, dict[str, Any]], Any]


def evaluate(program: Callable[[], Any], change: Change | None = None) -> Any:
    """Result of the program with all its floating-point types widened. change: called in place of each operation that
    computes, with the operation, its arguments and its keyword arguments. Raises BenchmarkError NO_FLOAT64.
    """
    import torch

    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        stack.enter_context(_mode(change))
        try:
            return program()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            if is_out_of_memory(error):  # the program is not at fault
                raise
            raise BenchmarkError(
                "NO_FLOAT64",
                f"The reference cannot be computed in float64: {type(error).__name__}: {str(error)[:300]}",
                "Define reference() in the baseline file: the same formula in torch operations that take float64.",
            ) from error


def _mode(change: Change | None) -> Any:
    """A dispatch mode that replaces narrow types among the arguments of every operation.

    Programs of many small operations spend most of their time in it, so it does nothing about views, and there is one
    mode for all purposes: what it calls itself does not come back here.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    wide = _types()
    is_view, from_file, dtype = cache(_is_view), torch.ops.aten.from_file.default, torch.dtype

    def dispatch(mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_view(func):
            return func(*args, **(kwargs or {}))
        if func is from_file:  # a file has the type that it was written in
            result = func(*args, **{"dtype": torch.float32, **(kwargs or {})})
            return result.to(wide.get(result.dtype, result.dtype))
        given = (kwargs or {}).items()
        options = {name: wide.get(value, value) if type(value) is dtype else value for name, value in given}
        args = tuple(wide.get(arg, arg) if type(arg) is dtype else arg for arg in args)
        smaller = decomposition(func) if change is not None else None

        def computed(args: tuple[Any, ...]) -> Any:
            if change is None:
                return func(*args, **options)
            if smaller:
                with mode:
                    return smaller(*args, **options)
            return change(func, args, options)

        try:
            return computed(args)
        except RuntimeError as error:  # wide inputs beside narrow tensors that the program holds, such as weights
            if is_out_of_memory(error):
                raise
            wider = tuple(_widened(arg, wide) for arg in args)
            if all(one is other for one, other in zip(args, wider, strict=True)):
                raise
            return computed(wider)

    # The library wraps a mode's function at its first call, to hide it from its compiler, and imports the whole
    # compiler for that: 3 s per comparison. A function that is already wrapped is used as it is.
    dispatch.__dict__["__dynamo_disable"] = dispatch

    class Widened(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = dispatch

    return Widened()


def is_out_of_memory(error: BaseException) -> bool:
    """True for out-of-memory errors: torch raises OutOfMemoryError on a device and a plain RuntimeError on the host."""
    words = ("can't allocate memory", "not enough memory", NO_DEVICE_MEMORY, UNDESCRIBED)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(word in str(error) for word in words)
    )


def _types() -> dict[Any, Any]:
    """The wide type of each narrow one."""
    import torch

    wide: dict[Any, Any] = {getattr(torch, name): torch.float64 for name in NARROW}
    return wide | {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def widened(value: Any) -> Any:
    """The value itself, or in float64 if it is a tensor of a narrower floating-point type."""
    return _widened(value, _types())


@contextmanager
def widening_operands() -> Iterator[None]:
    """Give each operation of a program that it is around its operands in float64, and free these copies after it.

    Views stay narrow, so of weights only those that an operation uses are copied. Enter evaluate() first.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    wide = _types()

    def dispatch(_: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _is_view(func):
            return func(*args, **(kwargs or {}))
        for arg, about in zip(args, func._schema.arguments, strict=False):
            if about.alias_info and about.alias_info.is_write and getattr(arg, "dtype", None) in wide:
                raise torch.OutOfMemoryError("the reference changes a tensor that cannot be copied to float64")
        args, kwargs = tree_map(lambda value: _widened(value, wide), (args, kwargs or {}))
        return func(*args, **kwargs)

    dispatch.__dict__["__dynamo_disable"] = dispatch  # as above
    mode = type("ByOperation", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})()
    with mode:
        yield


def _widened(value: Any, wide: Mapping[Any, Any]) -> Any:
    """The value itself, or in its wider type if it is a tensor of a narrow one."""
    dtype = getattr(value, "dtype", None)
    return value.to(wide[dtype]) if dtype in wide and hasattr(value, "to") else value


def _is_view(func: Any) -> bool:
    """Return True for an operation that computes nothing: its result is a view of an unchanged argument."""
    aliases = [argument.alias_info for argument in func._schema.arguments if argument.alias_info]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


# Noise of the size of roundings


def evaluate_jittered(program: Callable[[], Any], eps: float, most_terms: float, seed: int) -> Any:
    """evaluate() with the results of all operations off by half an eps at random. most_terms: the number of terms that
    a sum is assumed to add one by one. Raises BenchmarkError NO_FLOAT64.
    """
    noise = Noise(seed)

    def noisy(func: Any, args: Any, kwargs: Any) -> Any:
        name = func.overloadpacket.__name__
        size, result = rounded_size(name, args, kwargs), func(*args, **kwargs)
        if not name.startswith(("_to_copy", "set_", "resize")):
            given = _tensors(args)
            for value in _results(func, given, result):
                length = min(terms_per_element(name, value, given), most_terms)
                sizes = size if size is not None and size.shape == value.shape else value
                for part, sized in pieces(value, sizes):
                    _disturb(part, noise.like(part), eps * max(1.0, ORDERED * math.sqrt(length)), sized)
        return result

    return evaluate(program, noisy)


def computes(program: Callable[[], Any]) -> bool:
    """Return True if torch sees the program compute with floating-point numbers. Raises BenchmarkError NO_FLOAT64."""
    found = False

    def look(func: Any, args: Any, kwargs: Any) -> Any:
        nonlocal found
        result = func(*args, **kwargs)
        is_move = func.overloadpacket.__name__ in MOVES
        found = found or (not is_move and any(True for _ in _results(func, _tensors(args), result)))
        return result

    evaluate(program, look)
    return found


def evaluate_in_order(program: Callable[[], Any]) -> Any:
    """evaluate() with sums of float32 numbers whose terms are added one after the other. Raises BenchmarkError
    NO_FLOAT64.
    """

    def ordered(func: Any, args: Any, kwargs: Any) -> Any:
        error, result = error_in_order(func.overloadpacket.__name__, args, kwargs), func(*args, **kwargs)
        return result if error is None else result.add_(error.view(result.shape))

    return evaluate(program, ordered)


class Noise:
    """Numbers between -0.5 and 0.5. Small results take their noise from random positions of one precomputed supply,
    which is drawn once the results need more numbers than FRESH.
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._places, self._fresh = seed, random.Random(seed), FRESH
        self._draws: dict[Any, Any] = {}  # generator by device
        self._supplies: dict[Any, Any] = {}

    def like(self, value: Any) -> Any:
        """A tensor of the shape of the value, on its device. It may be part of the supply, so it must not change."""
        import torch

        device, count = value.device, value.numel()
        if device not in self._draws:
            self._draws[device] = torch.Generator(device=device).manual_seed(self._seed)
        self._fresh -= count
        if self._fresh >= 0 or count > SUPPLY // 2:
            return _drawn(value.shape, device, self._draws[device])
        if device not in self._supplies:
            self._supplies[device] = _drawn((SUPPLY,), device, self._draws[device])
        begin = self._places.randrange(SUPPLY - count)
        return self._supplies[device][begin : begin + count].view(value.shape)


def _drawn(shape: Sequence[int], device: Any, draw: Any) -> Any:
    import torch

    return torch.rand(shape, dtype=torch.float64, device=device, generator=draw).sub_(0.5)


def _disturb(value: Any, noise: Any, by: float, size: Any) -> None:
    """Move a result, in place, by a rounding of its size: itself, or the largest partial sum. An infinite result, such
    as that of a mask, stays what it is.
    """
    import torch

    if size.data_ptr() == value.data_ptr():
        value.mul_(torch.add(1.0, noise, alpha=by))
    else:
        value.addcmul_(size.nan_to_num(0.0, 0.0, 0.0), noise, value=by)


def _results(func: Any, given: Sequence[Any], result: Any) -> Iterator[Any]:
    """The results that were computed, and so rounded: neither views of arguments nor unchanged arguments."""
    import torch

    held = set() if func._schema.is_mutable else {tensor.untyped_storage()._cdata for tensor in given}
    for value in _tensors((result,)):
        is_computed = value.dtype in (torch.float64, torch.complex128) and value.untyped_storage()._cdata not in held
        if is_computed and value.numel() and not _is_expanded(value):
            yield value


def _tensors(values: Any) -> list[Any]:
    """The tensors among arguments or results, and in their lists."""
    import torch

    tensors = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors


def _is_expanded(value: Any) -> bool:
    """True if elements share memory, which cannot be changed in place."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))


# What sums add, and how


def decomposition(func: Any) -> Callable[..., Any] | None:
    """The operation as a function of smaller ones, or None for operations that are not decomposed."""
    from torch._decomp import decomposition_table

    name = func.overloadpacket.__name__
    if name == "var_mean":
        return _variance_and_mean
    found: Callable[..., Any] | None = decomposition_table.get(func) if name in COMPOSITES else None
    return found


def _variance_and_mean(values: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The library's own steps hide the variance in an operation of its compiler."""
    variance = values.var(*args, **kwargs)
    dims = _dims((values, *args)) or list(range(values.ndim))
    mean = values.mean(dims, keepdim=variance.ndim == values.ndim)
    return variance, mean


def terms_per_element(name: str, value: Any, given: Sequence[Any]) -> float:
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


def rounded_size(name: str, args: Any, kwargs: Any) -> Any:
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
    width, step = terms.shape[-1], SCAN_STEP if terms.shape[-1] >= LONG_SCAN else 1
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


# TF32 in convolutions


def allows_tf32(device: str) -> bool:
    """Return True if convolutions on this device may use TF32, as the programs of this process have set it."""
    import torch

    return device == "cuda" and bool(torch.backends.cudnn.allow_tf32)


def rounded_to_tf32(values: Any) -> Any:
    """The values, in float64, rounded to the nearest number in TF32."""
    import torch

    bits = values.float().view(torch.int32)
    return bits.add(1 << DROPPED - 1).bitwise_and_(-1 << DROPPED).view(torch.float32).double()


def truncated_to_tf32(values: Any) -> Any:
    """The values, in float64, without the bits that TF32 does not have, as a tensor core reads them."""
    import torch

    return values.float().view(torch.int32).bitwise_and(-1 << DROPPED).view(torch.float32).double()


def evaluate_in_tf32(program: Callable[[], Any], narrowed: Callable[[Any], Any] = rounded_to_tf32) -> tuple[Any, bool]:
    """(evaluate() with the operands of convolutions in TF32, whether there was any). narrowed: how these become TF32.
    Raises BenchmarkError NO_FLOAT64.
    """
    import torch

    found = False

    def change(func: Any, args: Any, kwargs: Any) -> Any:
        nonlocal found
        if func.overloadpacket.__name__ in CONVOLUTIONS:
            found = True
            args = [narrowed(arg) if isinstance(arg, torch.Tensor) and arg.ndim > 1 else arg for arg in args]
        return func(*args, **kwargs)

    return evaluate(program, change), found
