"""Evaluation in float64 of programs that choose narrower types themselves.

A mixed-precision baseline contains casts. On float64 inputs it would still round there, and the reference would contain
its rounding: a more precise candidate would be called wrong. So casts and new tensors of a floating-point type become
float64 (complex types: complex128), whatever the program requests, and autocast is off.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.verifier import sums

NARROW = ("float32", "float16", "bfloat16")  # 8-bit types stay: they are a contract's quantisation
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
        except torch.OutOfMemoryError:  # a RuntimeError too, but the program is not at fault
            raise
        except (RuntimeError, TypeError, NotImplementedError) as error:
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

    wide: dict[Any, Any] = {getattr(torch, name): torch.float64 for name in NARROW}
    wide |= {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
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
        if change is None:
            return func(*args, **options)
        if smaller := sums.steps(func):
            with mode:
                return smaller(*args, **options)
        return change(func, args, options)

    # The library wraps a mode's function at its first call, to hide it from its compiler, and imports the whole
    # compiler for that: 3 s per comparison. A function that is already wrapped is used as it is.
    dispatch.__dict__["__dynamo_disable"] = dispatch

    class Widened(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = dispatch

    return Widened()


def _is_view(func: Any) -> bool:
    """Return True for an operation that computes nothing: its result is a view of an unchanged argument."""
    aliases = [argument.alias_info for argument in func._schema.arguments if argument.alias_info]
    return bool(aliases) and not any(alias.is_write for alias in aliases)
