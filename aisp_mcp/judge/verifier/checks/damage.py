"""Damage to the memory around a round's outputs, and elements of them that were never written."""

from __future__ import annotations

from typing import Any

from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier.checks.tolerance import is_poison

POISON = 0xFF  # NaN in every floating-point format, -1 in every signed integer


def broken_guard(arena: Arena, count: int) -> int | None:
    """The first of `count` calls after which a guard around an output has changed."""
    frames = arena.frames(count)
    for offset, size in arena.layout.frame_guards():
        broken = (frames[:, offset : offset + size] != POISON).any(1)
        if bool(broken.any()):
            return int(broken.int().argmax())
    return None


def left_poison(arena: Arena, count: int, calls: list[int]) -> tuple[int, str] | None:
    """The first of these calls, and the name of the output, with a floating-point element that was never written."""
    import torch

    for spec, offset in arena.layout.frame_outputs() if calls else ():
        if spec.dtype.startswith(("float", "bfloat", "complex")) and spec.nbytes:
            rows = _rows(arena.frames(count)[:, offset : offset + spec.nbytes], calls)
            left = torch.cat([is_poison(part, spec.dtype, spec.itemsize) for part in rows])
            if bool(left.any()):
                return calls[int(left.int().argmax())], spec.name
    return None


def _rows(outputs: Any, calls: list[int]) -> list[Any]:
    """The rows of these calls, in host memory without a copy; a device is faster on all of them together."""
    if len(calls) == len(outputs):
        return [outputs]
    return [outputs[call : call + 1] for call in calls] if outputs.device.type == "cpu" else [outputs[calls]]
