"""Strides of a worker's outputs: those of the contract, into which others are copied as part of each timed call, or
those of its first outputs, if the contract leaves them free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aisp_mcp.judge.candidate.contract import has_strides
from aisp_mcp.judge.protocol.layout import TensorSpec
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.shared_memory import COPIED_INTO_STRIDES, OWN_STRIDES, STRIDES, Arena, ControlBlock
from aisp_mcp.judge.protocol.strides import encode, order_of


class OutputStrides:
    """specs: contracts of the outputs, in the strides that count. targets: memory of the arena for the outputs of each
    call, in these strides. free: the first outputs decide.
    """

    def __init__(self, control: ControlBlock, arena: Arena, free: bool) -> None:
        self._control, self._arena, self._free = control, arena, free
        self.targets: list[list[Any]] = []
        self._use(arena)

    def _use(self, arena: Arena) -> None:
        self.specs = arena.layout.outputs
        self.targets[:] = [arena.outputs(call) for call in range(arena.layout.capacity)]

    def fit(self, output: Any) -> bool:
        """Return True if the outputs of a call can be read as they are, False if they must be copied."""
        free, self._free = self._free, False
        tensors = [tensor for _, tensor in flatten(output)]
        return not self._differ(tensors) or (free and self._adopt(tensors))

    def _differ(self, tensors: Sequence[Any]) -> bool:
        return len(tensors) == len(self.specs) and any(map(_differs, tensors, self.specs))

    def _adopt(self, tensors: Sequence[Any]) -> bool:
        """Take the strides of these outputs, from now on, if all of them cover a block of memory. Return False if one
        does not.
        """
        orders = [0] * len(tensors)
        for index, (tensor, spec) in enumerate(zip(tensors, self.specs, strict=True)):
            if not _differs(tensor, spec):
                continue
            order = order_of(spec.shape, tensor.stride())
            if order is None or tensor.is_conj() or tensor.is_neg():
                return False
            orders[index] = encode(order)
        for index, order_number in enumerate(orders):
            self._control.orders[index] = order_number
        self._control.stats[STRIDES] = OWN_STRIDES
        self._use(self._arena.in_orders(orders))
        self.specs = tuple(
            replace(spec, stride=tuple(tensor.stride())) for tensor, spec in zip(tensors, self.specs, strict=True)
        )  # those of dimensions of one element, too, so that later outputs are recognised at once
        return True

    def copied(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the program so that its outputs are copied into these strides, as part of the timed call."""
        self._control.stats[STRIDES] = COPIED_INTO_STRIDES
        return lambda **inputs: self.whole(run(**inputs))

    def whole(self, output: Any) -> Any:
        """The outputs of a call, copied where they have other strides."""
        import torch

        tensors = [tensor for _, tensor in flatten(output)]
        if not self._differ(tensors):
            return output
        return [
            torch.empty_strided(spec.shape, spec.stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
            if _differs(tensor, spec)
            else tensor
            for tensor, spec in zip(tensors, self.specs, strict=True)
        ]


def _differs(tensor: Any, spec: TensorSpec) -> bool:
    """Return True if an output of the promised shape has other strides, or a pending conjugation."""
    if tuple(tensor.shape) != spec.shape:
        return False
    return tensor.is_conj() or tensor.is_neg() or not has_strides(tensor, spec)
