"""Memory shared by the verifier and one worker: a control block on the host, and an arena of tensors on host or device.

Host memory is an anonymous file handed over by descriptor; device memory is a CUDA IPC handle. Nothing is pickled.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol.layout import GUARD, SEGMENT, SEGMENTS, STATS, TEXT, Layout, TensorSpec, in_order
from aisp_mcp.judge.protocol.messages import DeviceAllocation

# Counters: how often the gate was opened, whether the worker can wait at it, whether the last round without
# copies raised, how many of these rounds the device has ended. If inputs come one call at a time: for how many
# calls they have arrived, for which one the worker waits (from 1), and for how many its turn on a device has come.
# Then the ns that a round on a GPU took by the worker's own clock, from the command on; whether the verifier
# has enqueued such a round; the ns of a round without copies on a CPU that were spent on copies after all; and how many
# of its outputs are still to become tensors.
COUNTERS = (
    OPENED, CAN_WAIT, REFUSED, ENDED, HANDED_OVER, ANSWERED, SCHEDULED, ELAPSED_NS, ENQUEUED, COPIED_NS, UNSETTLED
) = range(-1, -12, -1)  # fmt: skip
# After the bytes used and reserved on a device: whether outputs that have other strides than the contract's are copied
# into them, or read as they are.
STRIDES, COPIED_INTO_STRIDES, OWN_STRIDES = 2, 1, 2
NO_LIMIT = 1 << 30  # more calls than any round has
NO_DEVICE_MEMORY = "out of device memory"  # in the message of an error for lack of it
# In torch's own error for it in a process that sees some of the machine's GPUs: it fails while it describes the lack.
UNDESCRIBED = "nvmlInit_v2_() INTERNAL ASSERT FAILED"
MAPPED = 3  # cudaHostRegisterPortable | cudaHostRegisterMapped


def map_file(fd: int, size: int) -> mmap.mmap:
    """Map a shared anonymous file with its pages present, so that no timed call pays for page faults."""
    if os.fstat(fd).st_size < size:
        os.ftruncate(fd, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        try:  # a read beyond the end of a truncated file would kill the process
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        except PermissionError:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & seals != seals:  # or another process has just done it
                raise
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))


class ControlBlock:
    """Host memory of one worker, all of it untrusted: durations[call] in ns, addresses[call * outputs + output] of a
    round whose outputs are read from outside, orders[output] of their dimensions (candidate/outputs.py), the device
    allocations that may contain them, stats counters, and its last message.
    """

    def __init__(self, fd: int, layout: Layout) -> None:
        self.layout = layout
        self._memory = map_file(fd, layout.control_bytes)
        self._text = layout.text_offset
        numbers = memoryview(self._memory)[: self._text].cast("q")
        self.durations = numbers[: layout.capacity]
        self.addresses = numbers[layout.capacity : layout.capacity * (1 + len(layout.outputs))]
        self.orders = numbers[layout.capacity * (1 + len(layout.outputs)) : -STATS - SEGMENTS * SEGMENT]
        self._allocations = numbers[-STATS - SEGMENTS * SEGMENT : -STATS]
        self.stats = numbers[-STATS:]
        self.ring = memoryview(self._memory)[self._text + TEXT :].cast("q")
        self._turns = 0

    @property
    def location(self) -> tuple[int, int]:
        """Address of its memory in this process, and the offset at which the counters end."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory)), self._text

    def addresses_of(self, calls: Iterable[int]) -> list[int]:
        """Addresses of the outputs of these calls, one call after the other."""
        width = len(self.layout.outputs)
        return [address % (1 << 64) for call in calls for address in self.addresses[call * width :][:width]]

    def open_gate(self) -> None:
        """Release the work that waits on the device for a counter, which only grows."""
        self._turns += 1
        self.stats[OPENED] = self._turns

    def begin_handoff(self) -> None:
        """Reset the counters: no call has its inputs, and none is done. Call it only while the worker is stopped."""
        self.stats[HANDED_OVER] = self.stats[ANSWERED] = self.stats[ENQUEUED] = 0

    def end_handoff(self) -> None:
        """Release all work that waits for inputs or for an answer."""
        self.stats[ENQUEUED] = self.stats[HANDED_OVER] = self.stats[ANSWERED] = NO_LIMIT

    def write_text(self, text: str) -> None:
        """Write a message of up to TEXT bytes of UTF-8."""
        self._memory[self._text : self._text + TEXT] = text.encode("utf-8", "replace")[:TEXT].ljust(TEXT, b"\0")

    def read_text(self) -> str:
        """The worker's message, with control characters removed."""
        raw = self._memory[self._text : self._text + TEXT].split(b"\0", 1)[0].decode("utf-8", "replace")
        return "".join(char for char in raw if char.isprintable())

    def write_allocations(self, allocations: Iterable[DeviceAllocation]) -> None:
        """Write as many allocations as fit."""
        rows = [row for row, _ in zip(allocations, range(SEGMENTS), strict=False)]
        for index, (address, size, handle) in enumerate(rows):
            words = memoryview(bytes.fromhex(handle)).cast("q")
            self._allocations[index * SEGMENT : (index + 1) * SEGMENT] = array("q", [address, size, *words])
        if len(rows) < SEGMENTS:
            self._allocations[len(rows) * SEGMENT + 1] = 0

    def read_allocations(self) -> list[DeviceAllocation]:
        """Allocations that the worker names; the list ends at the first one without bytes."""
        allocations = []
        for begin in range(0, SEGMENTS * SEGMENT, SEGMENT):
            address, size, *words = self._allocations[begin : begin + SEGMENT]
            if size <= 0:
                break
            allocations.append((address, size, array("q", words).tobytes().hex()))
        return allocations

    def clear(self) -> None:
        """Erase everything that a worker wrote."""
        self._allocations[1] = 0
        for counter in COUNTERS:
            self.stats[counter] = 0
        for numbers in (self.durations, self.orders):
            for index in range(len(numbers)):
                numbers[index] = 0
        self.write_text("")


class Arena:
    """Views of the tensors of a layout inside one flat tensor of bytes. host: on a GPU, the arena in host memory with
    the inputs that belong there.
    """

    def __init__(self, flat: Any, layout: Layout, host: Arena | None = None) -> None:
        self.flat = flat
        self.layout = layout
        self.host = host
        self._inputs: dict[int, dict[str, Any]] = {}  # making a view takes longer than filling it

    @property
    def parts(self) -> list[Arena]:
        """Arenas of one program: this one, or one per rank."""
        return [self]

    def view(self, spec: TensorSpec, offset: int) -> Any:
        """The tensor of that contract at that offset; empty tensors have no bytes."""
        import torch

        dtype = getattr(torch, spec.dtype)
        if spec.nbytes == 0:
            return torch.empty(spec.shape, dtype=dtype, device=self.flat.device)
        flat = self.flat[offset : offset + spec.nbytes].view(dtype)
        return flat.as_strided(spec.shape, spec.stride)

    def _named(self, placed: Iterable[tuple[TensorSpec, int]]) -> dict[str, Any]:
        return {spec.name: self.view(spec, offset) for spec, offset in placed}

    def frames(self, count: int) -> Any:
        """The bytes of the first `count` calls, one row each."""
        begin = self.layout.params_bytes
        return self.flat[begin : begin + count * self.layout.frame].view(count, self.layout.frame)

    def input_bytes(self, count: int) -> Any:
        """The bytes of the inputs of the first `count` calls, one row each; alike in layouts with the same inputs.

        The guard after the last input is the one before the first output, and is not included.
        """
        return self.frames(count)[:, GUARD : max(self.layout.inputs_end - GUARD, GUARD)]

    def params(self) -> dict[str, Any]:
        return self._named(self.layout.place_params())

    def inputs(self, call: int) -> dict[str, Any]:
        """Input tensors by name; the same objects each time."""
        if call not in self._inputs:
            tensors = self._named(self.layout.place_inputs(call))
            tensors |= {name: self.host.inputs(call)[name] for name in self.layout.host} if self.host else {}
            self._inputs[call] = tensors
        return self._inputs[call]

    def host_inputs(self, call: int) -> dict[str, Any]:
        """The inputs that are in host memory although the call runs on a device."""
        return {name: self.inputs(call)[name] for name in self.layout.host} if self.host else {}

    def outputs(self, call: int) -> list[Any]:
        return [self.view(spec, offset) for spec, offset in self.layout.place_outputs(call)]

    def in_orders(self, orders: Iterable[int]) -> Arena:
        """The same memory, with outputs whose dimensions are in these orders."""
        if not any(orders := list(orders)):
            return self
        outputs = tuple(in_order(spec, number) for spec, number in zip(self.layout.outputs, orders, strict=True))
        return Arena(self.flat, replace(self.layout, outputs=outputs), self.host)

    def inputs_alone(self) -> Arena:
        """The inputs of the first call as an arena without outputs, in the same memory."""
        begin = self.layout.params_bytes
        part = Layout((), self.layout.inputs, (), 1)
        return Arena(self.flat[begin - GUARD : begin + self.layout.inputs_end], part)

    def outputs_alone(self) -> Arena:
        """The outputs of the first call as an arena without inputs, in the same memory."""
        part = replace(self.layout, params=(), inputs=(), capacity=1)
        return Arena(self.flat[self.layout.outputs_begin : self.layout.params_bytes + self.layout.frame], part)


class GroupArena(Arena):
    """Arenas of all ranks of a program, under the names of their common layout. device: where outputs are read."""

    def __init__(self, ranks: list[Arena], layout: Layout, device: str) -> None:
        super().__init__(ranks[0].flat, layout)
        self._ranks, self._device = ranks, device

    @property
    def parts(self) -> list[Arena]:
        return self._ranks

    def params(self) -> dict[str, Any]:
        return {
            f"{name}@{rank}": tensor
            for rank, arena in enumerate(self._ranks)
            for name, tensor in arena.params().items()
        }

    def inputs(self, call: int) -> dict[str, Any]:
        ranks = enumerate(self._ranks)
        return {f"{name}@{rank}": tensor for rank, arena in ranks for name, tensor in arena.inputs(call).items()}

    def outputs(self, call: int) -> list[Any]:
        return [tensor.to(self._device) for arena in self._ranks for tensor in arena.outputs(call)]


def host_arena(fd: int, layout: Layout) -> Arena:
    """Map the arena of a CPU worker; verifier and worker call this on the same file."""
    import torch

    return Arena(torch.frombuffer(map_file(fd, layout.arena_bytes), dtype=torch.uint8), layout)


class DeviceBytes:
    """A device pointer in a form that torch can wrap without a copy."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 2}


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


@cache
def cudart() -> ctypes.CDLL:
    """The CUDA runtime that torch has already loaded into this process. Raises OSError when there is none."""
    import torch

    torch.cuda.init()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if "libcudart" in path:
            return ctypes.CDLL(path)
    return ctypes.CDLL("libcudart.so")


def check(code: int, what: str) -> None:
    if code != 0:
        raise OSError(f"{what} failed with CUDA error {code}{f': {NO_DEVICE_MEMORY}' if code == 2 else ''}")


def l2_reset() -> Callable[[], object]:
    """A function that resets the L2's persisting lines, which a flush does not evict."""
    return cudart().cudaCtxResetPersistingL2Cache


def export_device_arena(layout: Layout) -> tuple[Arena, str]:
    """Allocate an arena on the current device; returns it with its IPC handle in hexadecimal."""
    import torch

    runtime, pointer, handle = cudart(), ctypes.c_void_p(), _IpcHandle()
    check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(layout.arena_bytes)), "cudaMalloc")
    check(runtime.cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "cudaIpcGetMemHandle")
    assert pointer.value is not None
    flat = torch.as_tensor(DeviceBytes(pointer.value, layout.arena_bytes), device="cuda")
    return Arena(flat, layout), bytes(memoryview(handle)).hex()


def own_inputs(arena: Arena, handle: str) -> tuple[Any, list[dict[str, Any]], str]:
    """(bytes, inputs of each call, handle) of a worker's memory for the inputs of rounds without copies: that of the
    arena, which has this handle, if there is room for a single call only. Raises OSError.
    """
    if arena.layout.tight:
        return arena.inputs_alone().flat, [arena.inputs(0)], handle
    own, own_handle = export_device_arena(arena.layout.own)
    return own.flat, [own.inputs(call) for call in range(own.layout.capacity)], own_handle


def attach(setup: dict[str, Any], layout: Layout, fd: int) -> Arena:
    """The worker's view of its arena."""
    if setup["device"] != "cuda":
        return host_arena(fd, layout)
    import torch

    pointer, host = open_handle(setup["ipc"]), host_arena(fd, layout) if layout.host else None
    return Arena(torch.as_tensor(DeviceBytes(pointer, layout.arena_bytes), device="cuda"), layout, host)


def open_handle(handle: str) -> int:
    """Open an IPC handle, given in hexadecimal; return the address in this process. Raises OSError."""
    runtime, pointer = cudart(), ctypes.c_void_p()
    handle_bytes = _IpcHandle.from_buffer_copy(bytes.fromhex(handle))
    code = runtime.cudaIpcOpenMemHandle(ctypes.byref(pointer), handle_bytes, ctypes.c_uint(1))
    if code != 0:
        runtime.cudaGetLastError()  # or the next launch would report it
    check(code, "cudaIpcOpenMemHandle")
    assert pointer.value is not None
    return pointer.value


@cache
def driver() -> ctypes.CDLL:
    """The CUDA driver. Raises OSError when there is none."""
    return ctypes.CDLL("libcuda.so.1")


class Gate:
    """Points in a stream where work waits for a counter in a control block, or sets one. Raises OSError,
    AttributeError if the driver does not support that.
    """

    def __init__(self, control: ControlBlock) -> None:
        (begin, counters_end), pointer = control.location, ctypes.c_void_p()
        size = ctypes.c_size_t(control.layout.control_bytes)
        check(cudart().cudaHostRegister(ctypes.c_void_p(begin), size, MAPPED), "cudaHostRegister")
        status = cudart().cudaHostGetDevicePointer(ctypes.byref(pointer), ctypes.c_void_p(begin), 0)
        check(status, "cudaHostGetDevicePointer")
        assert pointer.value is not None
        self._words, self._turns, self._ends = pointer.value + counters_end, 0, 0
        self._wait, self._write = driver().cuStreamWaitValue32_v2, driver().cuStreamWriteValue32_v2

    def wait(self, stream: Any, which: int, number: int) -> None:
        """Make later work in the stream wait until the counter reaches the number. Raises OSError."""
        check(self._wait(*self._word(stream, which), number, 0), "cuStreamWaitValue32")  # 0: until it is reached

    def say(self, stream: Any, which: int, number: int) -> None:
        """Have the device set the counter once all earlier work in the stream is done; the process itself would be some
        50 µs later. Raises OSError.
        """
        check(self._write(*self._word(stream, which), number, 0), "cuStreamWriteValue32")

    def shut(self, stream: Any) -> None:
        """Make later work in the stream wait until the parent opens the gate. Raises OSError."""
        self._turns += 1
        self.wait(stream, OPENED, self._turns)

    def end(self, stream: Any) -> None:
        """Have the device signal that the round is done. Raises OSError."""
        self._ends += 1
        self.say(stream, ENDED, self._ends)

    def _word(self, stream: Any, which: int) -> tuple[ctypes.c_void_p, ctypes.c_uint64]:
        return ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(self._words + 8 * which)


def device_allocations() -> Iterator[DeviceAllocation]:
    """The part of the device memory of torch's allocator in this process that can be shared."""
    import torch

    runtime = cudart()
    for segment in torch.cuda.memory_snapshot():
        handle = _IpcHandle()
        if runtime.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(segment["address"])) == 0:
            yield segment["address"], segment["total_size"], bytes(memoryview(handle)).hex()
        else:
            runtime.cudaGetLastError()  # or the next launch would report it
