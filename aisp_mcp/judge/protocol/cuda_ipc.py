"""Device memory of a worker as the verifier reaches it: through handles that the worker names."""

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

NEAR = 1 << 16  # bytes between outputs that are read along, rather than by a copy of their own


class MappedMemory:
    """Memory of one worker. own: the inputs of rounds without copies, as the worker sees them; None where it has none.

    The size of an allocation comes from the driver, not from the worker.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.own: Arena | None = None
        self._flat: dict[int, Any] = {}  # by address in the worker
        self._begins: list[int] = []  # these addresses in order
        self._opened: dict[str, tuple[int, Any]] = {}  # by handle: the address here, and its bytes as a tensor
        self._spans: list[list[tuple[Any, Any]]] = []  # bytes in the worker and room for them, taken at one time
        self._targets: list[tuple[Any, int]] = []  # of that room, an output's bytes, and where they belong

    def update(self, allocations: Sequence[DeviceAllocation]) -> bool:
        """Open what is new and forget where the rest was; what cannot be opened is left out. Whether there is `own`,
        which is the first allocation. No allocations at all: let go of everything.
        """
        self._flat, self.own = {}, None
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
        if len(flat) >= self.layout.own.arena_bytes:
            self.own = Arena(flat[: self.layout.own.arena_bytes], self.layout.own)
        return self.own is not None

    def _bytes_at(self, address: int, size: int) -> Any:
        """The bytes that lie there in the worker; None where that is nowhere."""
        if not (index := bisect_right(self._begins, address)):
            return None
        begin = self._begins[index - 1]
        flat = self._flat[begin]
        return flat[address - begin : address - begin + size] if address + size <= begin + len(flat) else None

    def map_outputs(self, count: int, addresses: Sequence[int], apart: bool = False) -> bool:
        """Note where the outputs of `count` calls lie, as the worker says, and make room for them. apart: those of each
        call are taken by themselves.

        False if outputs of two calls overlap, or if one is outside the mapped memory.
        """
        self._spans, self._targets = [], []
        places = [(call, spec.nbytes, at) for call in range(count) for spec, at in self.layout.place_outputs(call)]
        outputs = sorted((address, *place) for address, place in zip(addresses, places, strict=True) if place[1])
        for (low, call, size, _), (high, other, *_) in pairwise(outputs):
            if call != other and high < low + size:
                return False
        if any(self._bytes_at(address, size) is None for address, _, size, _ in outputs):
            return False
        for chosen in range(count) if apart else (None,):
            self._make_room([(address, size, at) for address, call, size, at in outputs if chosen in (None, call)])
        return True

    def _make_room(self, outputs: Sequence[tuple[int, int, int]]) -> None:
        """Outputs that lie near each other are taken by one copy: the fewer, the sooner the last one begins."""
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
        self._spans.append([(self._bytes_at(begin, len(taken)), taken) for begin, taken in room.items()])
        random.shuffle(self._spans[-1])
        begins = sorted(room)
        for address, size, at in outputs:
            begin = begins[bisect_right(begins, address) - 1]
            self._targets.append((room[begin][address - begin : address - begin + size], at))

    def copy(self, call: int = 0) -> None:
        """Have these outputs read at once, in an order that nobody knows: what is written later is not in them. call:
        whose, where they are taken by themselves.
        """
        for there, taken in self._spans[call]:
            taken.copy_(there)

    def scatter(self, held: Arena) -> None:
        """Copy the collected outputs to where a round's outputs belong, and the inputs as the calls left them."""
        for taken, at in self._targets:
            held.flat[at : at + len(taken)].copy_(taken)
        assert self.own is not None
        count = (len(held.flat) - held.layout.params_bytes) // held.layout.frame
        held.input_bytes(count).copy_(self.own.input_bytes(count))


class Staged:
    """Inputs of a round where no worker sees them, until they are written at once to where its calls expect them."""

    def __init__(self, layout: Layout, device: str) -> None:
        import torch

        self.arena = Arena(torch.empty(layout.own.arena_bytes, dtype=torch.uint8, device=device), layout.own)
        self._flush = torch.empty(FLUSH_BYTES if device == "cuda" else 0, dtype=torch.uint8, device=device)

    def write(self, arena: Arena, count: int) -> None:
        """On a GPU: write the inputs of so many calls into an arena, and leave none of them in the L2."""
        arena.input_bytes(count).copy_(self.arena.input_bytes(count))
        self._flush.zero_()

    def write_call(self, arena: Arena, call: int) -> None:
        """The same of one call."""
        arena.input_bytes(call + 1)[call].copy_(self.arena.input_bytes(call + 1)[call])
        self._flush.zero_()


def _opened(handle: str) -> tuple[int, Any]:
    """Address of the handle's memory in this process, and its bytes. Raises OSError, RuntimeError."""
    pointer = open_handle(handle)
    try:
        return pointer, _adopted(pointer)
    except (OSError, RuntimeError):
        _close(pointer)
        raise


def _close(pointer: int) -> None:
    cudart().cudaIpcCloseMemHandle(ctypes.c_void_p(pointer))


def _adopted(pointer: int) -> Any:
    """Memory from there to the end of its allocation, as a tensor of bytes. Raises OSError, RuntimeError."""
    import torch

    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    check(status, "cuMemGetAddressRange")
    if pointer % ALIGN:
        raise OSError("what the handle names is not where an allocator would put it")
    return torch.as_tensor(DeviceBytes(pointer, base.value + size.value - pointer), device="cuda")
