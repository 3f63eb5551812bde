"""Convolutions in TF32, which PyTorch uses on a GPU unless a program forbids it.

The flag only allows it. Whether a convolution in float32 rounds its operands to TF32 depends on the algorithm that the
library picks, and so on the order of dimensions in memory: a baseline may be precise by chance, and a candidate that
asks for `channels_last` is not. Some algorithms round to the nearest number, others leave the tensor cores to ignore
the last bits, and a program that tunes itself may get either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.judge.verifier.widened import evaluate

CONVOLUTIONS = ("convolution", "convolution_backward")
DROPPED = 13  # bits of a float32 number that TF32 does not have


def is_allowed(device: str) -> bool:
    """Return True if convolutions on this device may use TF32, as the programs of this process have set it."""
    import torch

    return device == "cuda" and bool(torch.backends.cudnn.allow_tf32)


def rounded(values: Any) -> Any:
    """The values, in float64, rounded to the nearest number in TF32."""
    import torch

    bits = values.float().view(torch.int32)
    return bits.add(1 << DROPPED - 1).bitwise_and_(-1 << DROPPED).view(torch.float32).double()


def truncated(values: Any) -> Any:
    """The values, in float64, without the bits that TF32 does not have, as a tensor core reads them."""
    import torch

    return values.float().view(torch.int32).bitwise_and(-1 << DROPPED).view(torch.float32).double()


def evaluate_in_tf32(program: Callable[[], Any], narrowed: Callable[[Any], Any] = rounded) -> tuple[Any, bool]:
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
