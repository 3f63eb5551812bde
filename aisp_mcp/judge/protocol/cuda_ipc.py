"""Access of the verifier to a worker's device memory, through IPC handles that the worker names."""

from __future__ import annotations

import ctypes
import random
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from aisp_mcp.judge.protocol.layout import ALIGN, FLUSH_BYTES, Layout
from aisp_mcp.judge.protocol.messages import DeviceAllocation
from aisp_mcp.judge.protocol.shared_memory import Arena, DeviceBytes, check, cudart, driver, open_handle

NEAR = 1 << 16  # outputs with at most this many bytes between them are read by one copy


class MappedMemory:
    """Memory of one worker. own: the inputs of rounds without copies, in the worker's own memory; None if there are
    none. shared: memory of all workers that is used for these inputs.

    The size of an allocation comes from the driver, not from the worker.
    """

    def __init__(self, layout: Layout, shared: Arena | None = None) -> None:
        self.layout = layout
        self._shared = shared
        self.own: Arena | None = None
        self._flat: dict[int, Any] = {}  # by address in the worker
        self._begins: list[int] = []  # these addresses in order
        self._opened: dict[str, tuple[int, Any]] = {}  # by handle: address in this process, bytes as a tensor
        self._spans: list[list[tuple[Any, Any]]] = []  # bytes in the worker and a buffer for them, copied together
        self._targets: list[tuple[Any, int]] = []  # an output's bytes in that buffer, and their offset in the arena

    def update(self, allocations: Sequence[DeviceAllocation]) -> bool:
        """Open new allocations and close the others; skip those that cannot be opened. Return True if `own`, the first
        allocation, is open. An empty list closes everything.
        """
        self._flat, self.own = {}, self._shared if allocations else None
        self._spans, self._targets = [], []
        for address, _, handle in allocations:
            with suppress(OSError, RuntimeError):
                if handle not in self._opened:
                    self._opened[handle] = _opened(handle)
            if handle in self._opened:
                self._flat[address] = self._opened[handle][1]
        self._begins = sorted(self._flat)
        if not allocations:
            for pointer, _ in self._opened.values():
                _close(pointer)
            self._opened = {}
            return False
        _, flat = self._opened.get(allocations[0][2], (0, ()))
        if self.own is None and len(flat) >= self.layout.own.arena_bytes:
            self.own = Arena(flat[: self.layout.own.arena_bytes], self.layout.own)
        return self.own is not None

    def _bytes_at(self, address: int, size: int) -> Any:
        """The bytes at an address of the worker; None if it is outside the mapped memory."""
        if not (index := bisect_right(self._begins, address)):
            return None
        begin = self._begins[index - 1]
        flat = self._flat[begin]
        return flat[address - begin : address - begin + size] if address + size <= begin + len(flat) else None

    def map_outputs(self, count: int, addresses: Sequence[int], apart: bool = False) -> bool:
        """Record the addresses of the outputs of `count` calls, as the worker reports them, and allocate buffers.
        apart: each call's outputs are read separately, before the next call overwrites them.

        Returns False if outputs of two calls overlap and are not read apart, or if one is outside the mapped memory.
        """
        self._spans, self._targets = [], []
        extents = [(call, spec.nbytes, at) for call in range(count) for spec, at in self.layout.place_outputs(call)]
        outputs = sorted((address, *extent) for address, extent in zip(addresses, extents, strict=True) if extent[1])
        for (low, call, size, _), (high, other, *_) in pairwise(outputs):
            if not apart and call != other and high < low + size:
                return False
        if any(self._bytes_at(address, size) is None for address, _, size, _ in outputs):
            return False
        for chosen in range(count) if apart else (None,):
            self._make_room([(address, size, at) for address, call, size, at in outputs if chosen in (None, call)])
        return True

    def _make_room(self, outputs: Sequence[tuple[int, int, int]]) -> None:
        """Allocate buffers. Neighbouring outputs share one copy: with fewer copies, the last one starts sooner."""
        import torch

        spans: list[list[int]] = []  # [first address, one past the last]
        for address, size, _ in outputs:
            begin, end = spans[-1] if spans else (address, -NEAR - 1)
            whole = max(end, address + size) - begin
            if address - end <= NEAR and self._bytes_at(begin, whole) is not None:
                spans[-1][1] = begin + whole
            else:
                spans.append([address, address + size])
        room = {begin: torch.empty_like(self._bytes_at(begin, end - begin)) for begin, end in spans}
        self._spans.append([(self._bytes_at(begin, len(copy)), copy) for begin, copy in room.items()])
        random.shuffle(self._spans[-1])
        begins = sorted(room)
        for address, size, at in outputs:
            begin = begins[bisect_right(begins, address) - 1]
            self._targets.append((room[begin][address - begin : address - begin + size], at))

    def copy(self, call: int = 0) -> None:
        """Copy these outputs at once, in an unpredictable order, so that later writes are not in them. call: the call
        to copy, if calls are read separately. Nothing is copied if no outputs were mapped.
        """
        for there, copy in self._spans[call] if self._spans else ():
            copy.copy_(there)

    def scatter(self, held: Arena) -> None:
        """Copy the collected outputs to their position in the round's frames, and the inputs as the calls left them."""
        begin = self.layout.outputs_begin if self._shared else 0
        for copy, at in self._targets:
            held.flat[at - begin : at - begin + len(copy)].copy_(copy)
        assert self.own is not None
        if self._shared:  # which holds the inputs, too
            return
        count = (len(held.flat) - held.layout.params_bytes) // held.layout.frame
        held.input_bytes(count).copy_(self.own.input_bytes(count))


class Staged:
    """Inputs of a round that no worker can see until they are written to where its calls expect them."""

    def __init__(self, layout: Layout, device: str) -> None:
        import torch

        self.arena = Arena(torch.empty(layout.own.arena_bytes, dtype=torch.uint8, device=device), layout.own)
        self._flush = torch.empty(FLUSH_BYTES if device == "cuda" else 0, dtype=torch.uint8, device=device)

    def write(self, arena: Arena, count: int) -> None:
        """Write the inputs of `count` calls into an arena; on a GPU, flush them from the L2."""
        arena.input_bytes(count).copy_(self.arena.input_bytes(count))
        self._flush.zero_()

    def write_call(self, arena: Arena, call: int) -> None:
        """Write the inputs of one call, and flush them from the L2."""
        arena.input_bytes(call + 1)[call].copy_(self.arena.input_bytes(call + 1)[call])
        self._flush.zero_()


def _opened(handle: str) -> tuple[int, Any]:
    """(address in this process, bytes) of the memory that a handle exports. Raises OSError, RuntimeError."""
    pointer = open_handle(handle)
    try:
        return pointer, _adopted(pointer)
    except (OSError, RuntimeError):
        _close(pointer)
        raise


def _close(pointer: int) -> None:
    cudart().cudaIpcCloseMemHandle(ctypes.c_void_p(pointer))


def _adopted(pointer: int) -> Any:
    """Memory from that pointer to the end of its allocation, as a tensor of bytes. Raises OSError, RuntimeError."""
    import torch

    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    check(status, "cuMemGetAddressRange")
    if pointer % ALIGN:
        raise OSError("the exported memory is not aligned as an allocator would align it")
    return torch.as_tensor(DeviceBytes(pointer, base.value + size.value - pointer), device="cuda")
