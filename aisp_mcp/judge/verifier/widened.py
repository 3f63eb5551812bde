"""Evaluation in float64 of programs that choose narrower types themselves.

A mixed-precision baseline contains casts. On float64 inputs it would still round there, and its own rounding would pass
for the truth: a more precise candidate would be called wrong. So casts and new tensors of a floating-point type become
float64 (complex types: complex128), whatever the program requests, and autocast is off.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from aisp_mcp.errors import BenchmarkError

NARROW = ("float32", "float16", "bfloat16")  # 8-bit types stay: they are a contract's quantisation


def evaluate(program: Callable[[], Any]) -> Any:
    """Result of the program with all its floating-point types widened. Raises BenchmarkError NO_FLOAT64."""
    import torch

    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        stack.enter_context(_mode())
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


def _mode() -> Any:
    """A dispatch mode that replaces narrow types among the arguments of every operation."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    wide: dict[Any, Any] = {getattr(torch, name): torch.float64 for name in NARROW}
    wide |= {torch.complex64: torch.complex128, torch.complex32: torch.complex128}

    def dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = {
            name: wide.get(value, value) if _is_dtype(value) else value for name, value in (kwargs or {}).items()
        }
        if func is torch.ops.aten.view.dtype:
            return func(*args, **(kwargs or {}))
        if func is torch.ops.aten.from_file.default:  # a file has the type that it was written in
            result = func(*args, **{"dtype": torch.float32, **(kwargs or {})})
            return result.to(wide.get(result.dtype, result.dtype))
        return func(*(wide.get(arg, arg) if _is_dtype(arg) else arg for arg in args), **options)

    def _is_dtype(value: Any) -> bool:
        return isinstance(value, torch.dtype)

    # The library wraps a mode's function at its first call, to hide it from its compiler, and imports the whole
    # compiler for that: 3 s per comparison. A function that is already wrapped is used as it is.
    dispatch.__dict__["__dynamo_disable"] = dispatch

    class Widened(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = dispatch

    return Widened()
