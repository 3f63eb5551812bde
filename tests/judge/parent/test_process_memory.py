"""Outputs are read out of a worker that stands still."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aisp_mcp.judge.parent.processes import process as remote
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.shared_memory import ControlBlock, map_file

SPEC = TensorSpec("out", "float32", (256,), (1,), 4)
LAYOUT = Layout(params=(), inputs=(), outputs=(SPEC,), capacity=3)
CHILD = """
import ctypes, sys
kept = [ctypes.create_string_buffer(bytes([65 + i]) * 1024) for i in range(3)]
print(*[ctypes.addressof(one) for one in kept], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stopped() -> Iterator[tuple[int, list[int]]]:
    """(pid, addresses of three pieces of 1 KiB) of a process that waits."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, [int(word) for word in process.stdout.readline().split()]
        process.kill()


@pytest.fixture
def memory() -> Iterator[tuple[ControlBlock, int]]:
    fds = [os.memfd_create(name, os.MFD_ALLOW_SEALING) for name in ("control", "arena")]
    os.ftruncate(fds[1], LAYOUT.arena_bytes)
    yield ControlBlock(fds[0], LAYOUT), fds[1]
    for fd in fds:
        os.close(fd)


def test_outputs_of_the_wanted_calls_are_read_from_where_the_worker_says(
    stopped: tuple[int, list[int]], memory: tuple[ControlBlock, int]
) -> None:
    (pid, addresses), (control, arena) = stopped, memory
    for call, address in enumerate(addresses):
        control.addresses[call] = address
    if not remote.is_readable(pid):
        pytest.skip("here no process may read its child's memory")
    remote.fetch(pid, control, map_file(arena, LAYOUT.arena_bytes), [0, 2])
    for call, letter in enumerate(b"A\0C"):
        ((_, offset),) = LAYOUT.place_outputs(call)
        assert os.pread(arena, 1024, offset) == bytes([letter]) * 1024


def test_a_process_that_is_gone_cannot_be_read() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert not remote.is_readable(process.pid)


@pytest.mark.parametrize("address", [0, -1, 1 << 46], ids=["nothing", "the kernel's", "not mapped"])
def test_an_address_where_nothing_lies_is_an_error(
    stopped: tuple[int, list[int]], memory: tuple[ControlBlock, int], address: int
) -> None:
    (pid, _), (control, arena) = stopped, memory
    control.addresses[0] = address
    with pytest.raises(OSError, match=r"Bad address|Operation not permitted|Function not implemented"):
        remote.fetch(pid, control, map_file(arena, LAYOUT.arena_bytes), [0])
