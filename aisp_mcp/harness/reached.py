"""Device memory of a worker as the verifier reaches it: through handles that the worker names."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

from aisp_mcp.harness.layout import ALIGN, Layout
from aisp_mcp.harness.memory import Arena, DeviceBytes, Piece, check, cudart, open_handle


class Reached:
    """Memory of one worker. own: the inputs of rounds without copies, as the worker sees them; None where it has none.

    How large a piece is, is asked of the driver and not of the worker.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.own: Arena | None = None
        self._flat: dict[int, Any] = {}  # by address in the worker
        self._opened: dict[str, tuple[int, Any]] = {}  # by handle: the address here, and its bytes as a tensor

    def update(self, pieces: Sequence[Piece]) -> bool:
        """Open what is new and forget where the rest was; what cannot be opened is left out. Whether there is `own`,
        which is the first piece. No pieces at all: let go of everything.
        """
        self._flat, self.own = {}, None
        for address, _, handle in pieces:
            with suppress(OSError, RuntimeError):
                if handle not in self._opened:
                    self._opened[handle] = _opened(handle)
            if handle in self._opened:
                self._flat[address] = self._opened[handle][1]
        if not pieces:
            for pointer, _ in self._opened.values():
                _close(pointer)
            self._opened = {}
            return False
        _, flat = self._opened.get(pieces[0][2], (0, ()))
        if len(flat) >= self.layout.own.arena_bytes:
            self.own = Arena(flat[: self.layout.own.arena_bytes], self.layout.own)
        return self.own is not None

    def _bytes_at(self, address: int, size: int) -> Any:
        """The bytes that lie there in the worker; None where that is nowhere."""
        for begin, flat in self._flat.items():
            if begin <= address and address + size <= begin + len(flat):
                return flat[address - begin : address - begin + size]
        return None

    def fetch(self, held: Arena, count: int, addresses: Sequence[int]) -> bool:
        """Copy the outputs of `count` calls from where the worker says they lie to their places in `held`.

        False where outputs of two calls overlap, or one lies in no memory that is reached.
        """
        places = [(call, spec.nbytes, at) for call in range(count) for spec, at in self.layout.place_outputs(call)]
        found = [(address, *place) for address, place in zip(addresses, places, strict=True) if place[1]]
        for (low, call, size, _), (high, other, *_) in pairwise(sorted(found)):
            if call != other and high < low + size:
                return False
        for address, _, size, at in found:
            there = self._bytes_at(address, size)
            if there is None:
                return False
            held.flat[at : at + size].copy_(there)
        return True


def _opened(handle: str) -> tuple[int, Any]:
    """Where what the handle names lies in this process, and its bytes. Raises OSError, RuntimeError."""
    pointer = open_handle(handle)
    try:
        return pointer, _adopted(pointer)
    except (OSError, RuntimeError):
        _close(pointer)
        raise


def _close(pointer: int) -> None:
    cudart().cudaIpcCloseMemHandle(ctypes.c_void_p(pointer))


def _adopted(pointer: int) -> Any:
    """What lies from there to the end of its allocation, as a tensor of bytes. Raises OSError, RuntimeError."""
    import torch

    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    found = _driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    check(found, "cuMemGetAddressRange")
    if pointer % ALIGN:
        raise OSError("what the handle names is not where an allocator would put it")
    return torch.as_tensor(DeviceBytes(pointer, base.value + size.value - pointer), device="cuda")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
