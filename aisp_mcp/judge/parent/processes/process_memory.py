"""Read outputs out of a stopped worker by process_vm_readv(2): nothing runs there, and the worker cannot refuse."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import threading
from collections.abc import Sequence
from errno import EFAULT

from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.protocol.shared_memory import ControlBlock

MAX_IOVECS = 512  # spans of memory per system call; the kernel's limit is 1024
DEADLINE_S = 20.0  # a read never ends if a stopped process would have to supply the pages


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def fetch(pid: int, control: ControlBlock, arena: mmap.mmap, calls: Sequence[int]) -> None:
    """Copy the outputs of these calls of the last round into the arena, from the addresses in the control block.

    Raises OSError: EPERM or ENOSYS if the kernel does not allow it, EFAULT if the memory is not readable.
    """
    layout, width = control.layout, len(control.layout.outputs)
    spans = [
        (control.addresses[call * width + index] % (1 << 64), at, spec.nbytes)
        for call in calls
        for index, (spec, at) in enumerate(layout.place_outputs(call))
        if spec.nbytes
    ]
    read(pid, spans, arena)


def is_readable(pid: int) -> bool:
    """Return True if the kernel lets this process read that one's memory."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            begin = int(next(iter(file)).partition("-")[0], 16)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            read(pid, [(begin, 0, 8)], page)
    except (OSError, StopIteration):
        return False
    return True


def read(pid: int, spans: Sequence[tuple[int, int, int]], into: mmap.mmap) -> None:
    """Copy spans (address there, offset here, bytes) of a stopped process into the mapping. Raises OSError as fetch()
    does.

    If a read takes longer than DEADLINE_S, the process is killed, which ends it.
    """
    waiting = threading.Timer(DEADLINE_S, proc.send, ([pid], signal.SIGKILL))
    waiting.start()
    try:
        for first in range(0, len(spans), MAX_IOVECS):
            _read_some(pid, spans[first : first + MAX_IOVECS], into)
    finally:
        waiting.cancel()


def _read_some(pid: int, spans: Sequence[tuple[int, int, int]], into: mmap.mmap) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    here = ctypes.c_char.from_buffer(into)  # must live as long as the address is used
    begin, count = ctypes.addressof(here), ctypes.c_ulong(len(spans))
    local = (_IoVec * len(spans))(*[_IoVec(begin + offset, size) for _, offset, size in spans])
    remote = (_IoVec * len(spans))(*[_IoVec(address, size) for address, _, size in spans])
    done = libc.process_vm_readv(pid, local, count, remote, count, ctypes.c_ulong(0))
    if done != sum(size for _, _, size in spans):
        code = ctypes.get_errno() if done < 0 else EFAULT
        raise OSError(code, os.strerror(code))
