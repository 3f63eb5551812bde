"""Outputs of a CPU round that stay where their calls left them, for the parent to read while the worker is stopped.

Anything between two calls counts as time of the round, and a candidate could skip it. So it is kept short: one
microsecond for an output that meets the contract.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aisp_mcp.judge.candidate.contract import OutputRules, SharedOutputError, check_contract, check_number, extent
from aisp_mcp.judge.candidate.strides import OutputStrides
from aisp_mcp.judge.protocol.layout import HEAP_BYTES, Layout
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.shared_memory import COPIED_NS, Arena, ControlBlock

RECENT = 4  # outputs
# Memory for the outputs of so many more calls is touched: an allocator needs a dozen to find places for them.
MORE_CALLS, MOST_BYTES = 16, 256 << 20


def touch_memory(layout: Layout, count: int) -> None:
    """Touch memory for the outputs of a round of that many calls, so that no timed call has to."""
    import torch

    sizes = [spec.nbytes for spec in layout.outputs if spec.nbytes <= HEAP_BYTES]
    calls = min(count + MORE_CALLS, MOST_BYTES // max(sum(sizes), 1))
    blocks = [torch.empty(size, dtype=torch.uint8).zero_() for size in calls * sizes]
    del blocks


class HeldOutputs:
    """Outputs of one round. copied_ns: spent on copies of outputs that a later call would have overwritten.

    wrap(): called if outputs must be copied into the strides that count. If a program returns memory of an output that
    is still alive, it will do so again, so all its later outputs are copied. The last few outputs stay alive beyond
    their round, so that rounds of one call, which come first, reveal this before an output is lost. alone: this round
    has only one call, so nothing overwrites its output.
    """

    def __init__(
        self, rules: OutputRules, strides: OutputStrides, arena: Arena, control: ControlBlock, wrap: Callable[[], None]
    ) -> None:
        import torch

        self._torch, self._rules, self._strides, self._wrap = torch, rules, strides, wrap
        self._arena, self._control = arena, control
        self._shared = range(*extent(arena.flat))
        self._reuses = self.alone = self._settled = False
        self._recent = deque[tuple[Sequence[Any], list[int]]](maxlen=RECENT)
        self.outputs: list[Sequence[Any]] = []
        self._expect()
        self.clear()

    def _expect(self) -> None:
        self._expected = [
            (getattr(self._torch, spec.dtype), self._torch.Size(spec.shape), spec.stride)
            for spec in self._strides.specs
        ]

    def clear(self) -> None:
        """Release the outputs of the previous round."""
        last = self.outputs[-RECENT:]
        self._recent.extend((tensors, [self._address(tensor) for tensor in tensors]) for tensors in last)
        self.outputs = []
        self._taken = {address for _, addresses in self._recent for address in addresses if address}
        self.copied_ns = 0

    @property
    def last(self) -> Any:
        """The output of the last call, one tensor or several."""
        tensors = self.outputs[-1]
        return tensors[0] if len(tensors) == 1 else tensors

    def round_at_rest(self, count: int, run: Callable[..., Any]) -> None:
        """Time `count` calls, each on new inputs, and record the addresses of their outputs."""
        clock, durations, with_paths = time.perf_counter_ns, self._control.durations, self._arena.layout.with_paths
        keep, all_inputs = self.keep, self._arena.inputs
        self.alone = count == 1
        for call in range(count):
            inputs = with_paths(all_inputs(call))
            begin = clock()
            output = run(**inputs)
            end = clock()
            keep(output)
            durations[call] = end - begin
        self.show(self._control.addresses)
        self._control.stats[COPIED_NS] = self.copied_ns

    def keep(self, output: Any) -> None:
        """Keep the output of a call alive. Raises ContractError, SharedOutputError."""
        if self._settled and not self._reuses and type(output) is self._torch.Tensor and self._is_plain(output):
            address = output.untyped_storage().data_ptr()
            if address and address not in self._taken and address not in self._shared:
                self._taken.add(address)
                self.outputs.append((output,))
                return
        self._keep_carefully(output)

    def _keep_carefully(self, output: Any) -> None:
        tensors: Sequence[Any] = [tensor for _, tensor in flatten(output)]
        if self._rules.checked and not (self._settled and self._are_as_promised(tensors)):
            tensors = self._mended(output)
        addresses = [self._address(tensor) for tensor in tensors]
        self._reuses = self._reuses or not self._taken.isdisjoint(addresses)
        if self._reuses and not self.alone:
            tensors = self._copied(tensors)
        else:
            self._taken.update(address for address in addresses if address)
        self.outputs.append(tensors)

    def show(self, addresses: memoryview) -> None:
        """Write the addresses of all outputs to the control block."""
        all_addresses = array("q", [tensor.data_ptr() for tensors in self.outputs for tensor in tensors])
        addresses[: len(all_addresses)] = all_addresses

    def _is_plain(self, tensor: Any) -> bool:
        """Return True for a single output that meets the contract exactly."""
        about = [(tensor.dtype, tensor.shape, tensor.stride())]
        return about == self._expected and not tensor.is_neg() and not tensor.is_conj()

    def _are_as_promised(self, tensors: Sequence[Any]) -> bool:
        """Return True if dtype, shape and strides match the contract exactly, and no lazy negation or conjugation is
        pending.
        """
        return len(tensors) == len(self._expected) and all(
            (tensor.dtype, tensor.shape, tensor.stride()) == expected
            and type(tensor) is self._torch.Tensor
            and not tensor.is_neg()
            and not tensor.is_conj()
            for tensor, expected in zip(tensors, self._expected, strict=True)
        )

    def _mended(self, output: Any) -> list[Any]:
        """The output, copied if its strides do not count; from the next call on, the copy is part of the call."""
        named, specs = flatten(output), self._strides.specs
        check_number(named, specs)
        for (name, tensor), spec in zip(named, specs, strict=True):
            check_contract(name, tensor, spec, self._torch.device("cpu"), self._rules.strict)
        if not self._strides.fit(output):
            self._wrap()
            output = self._strides.whole(output)
        self._expect()
        self._settled = True
        return [tensor for _, tensor in flatten(output)]

    def _address(self, tensor: Any) -> int:
        """Address of the tensor's storage; 0 if it has none. Raises SharedOutputError."""
        address: int = tensor.untyped_storage().data_ptr()
        if address not in self._shared:
            return address
        if self._rules.off_limits:
            raise SharedOutputError("an output shares the memory of an input")
        return int(tensor.data_ptr())

    def _copied(self, tensors: Sequence[Any]) -> list[Any]:
        begin = time.perf_counter_ns()
        copies = [
            self._torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
            for tensor in tensors
        ]
        self.copied_ns += time.perf_counter_ns() - begin
        return copies
