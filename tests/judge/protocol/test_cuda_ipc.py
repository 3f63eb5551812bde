"""Device memory of other processes, written and read from outside; on host memory, no GPU is needed."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.protocol import cuda_ipc
from aisp_mcp.judge.protocol.layout import NO_COPY_BYTES, NO_COPY_CALLS, SEGMENTS, Layout, TensorSpec
from aisp_mcp.judge.protocol.shared_memory import OPENED, Arena, ControlBlock, map_file

X, OUT = (TensorSpec(name, "float32", (8,), (1,), 4) for name in ("x", "out"))
LAYOUT = Layout((), (X,), (OUT,), 300)
BASE = 1 << 20  # where a worker says that its memory begins


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """By handle, instead of what a driver would open."""
    torch = pytest.importorskip("torch")
    memory_of = {handle: torch.arange(LAYOUT.own.arena_bytes).to(torch.uint8) for handle in ("aa", "bb")}
    numbers = {handle: index + 1 for index, handle in enumerate(memory_of)}

    def open_handle(handle: str) -> int:
        if handle not in numbers:
            raise OSError("cudaIpcOpenMemHandle failed with CUDA error 1")
        return numbers[handle]

    monkeypatch.setattr(cuda_ipc, "open_handle", open_handle)
    monkeypatch.setattr(cuda_ipc, "_adopted", lambda number: memory_of[list(memory_of)[number - 1]])
    return memory_of


SIZE = LAYOUT.own.arena_bytes


@pytest.mark.parametrize(
    ("addresses", "whole"),
    [
        ([BASE, BASE + 64], True),
        ([BASE + 96, BASE], True),
        ([BASE, BASE + 31], False),
        ([BASE, BASE + SIZE - 31], False),
        ([BASE, BASE - 1], False),
        ([BASE, 0], False),
    ],
    ids=["apart", "the other way round", "on each other", "beyond the end", "before the beginning", "nowhere"],
)
def test_outputs_are_taken_from_where_they_lie(memory: dict[str, Any], addresses: list[int], whole: bool) -> None:
    torch = pytest.importorskip("torch")
    mapped = cuda_ipc.MappedMemory(LAYOUT)
    # The size that a worker states is not believed, and a handle that opens nothing is left out.
    assert mapped.update([(1 << 30, 1, "aa"), (BASE, 1 << 40, "bb"), (2 << 20, 1 << 40, "cc")])
    assert mapped.map_outputs(2, addresses) is whole
    if not whole:
        return
    mapped.copy()
    memory["bb"].fill_(0)  # what is written later is not in it
    held = Arena(torch.zeros(LAYOUT.params_bytes + 2 * LAYOUT.frame, dtype=torch.uint8), LAYOUT)
    mapped.scatter(held)
    for call, address in enumerate(addresses):
        ((_, at),) = LAYOUT.place_outputs(call)
        assert held.flat[at : at + 32].tolist() == [byte % 256 for byte in range(address - BASE, address - BASE + 32)]
        ((_, mine),) = LAYOUT.own.place_inputs(call)
        ((_, at),) = LAYOUT.place_inputs(call)
        assert held.flat[at : at + 32].tolist() == [byte % 256 for byte in range(mine, mine + 32)]


def test_inputs_are_poured_and_no_guard_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    host = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: host(*size, **{**how, "device": "cpu"}).fill_(7))
    monkeypatch.setattr(cuda_ipc, "FLUSH_BYTES", 16)
    staged = cuda_ipc.Staged(LAYOUT, "cuda")
    for call in range(2):
        staged.arena.inputs(call)["x"].fill_(call + 1)
    for layout in (LAYOUT, LAYOUT.own):
        arena = Arena(torch.full((layout.arena_bytes,), 255, dtype=torch.uint8), layout)
        staged.write(arena, 2)
        for call in range(2):
            assert arena.inputs(call)["x"].tolist() == [call + 1] * 8
            for offset, size in layout.frame_guards():
                assert arena.frames(2)[:, offset : offset + size].unique().tolist() == [255]
        assert arena.frames(3)[2].unique().tolist() == [255]


def test_inputs_of_its_own_need_room(memory: dict[str, Any]) -> None:
    mapped = cuda_ipc.MappedMemory(LAYOUT)
    assert mapped.update([(1 << 30, 1, "aa")])
    assert mapped.own is not None
    assert list(mapped.own.inputs(3)) == ["x"]
    memory["aa"] = memory["aa"][:-1]
    other = cuda_ipc.MappedMemory(LAYOUT)
    assert not other.update([(1 << 30, LAYOUT.own.arena_bytes, "aa")])
    assert other.own is None


def test_inputs_of_its_own_are_a_few_gigabytes_at_most() -> None:
    large = Layout((), (TensorSpec("x", "uint8", (1 << 28,), (1,), 1),), (), 100)
    assert large.own.capacity == NO_COPY_BYTES // large.frame == 7
    assert Layout((), (X,), (), 1000).own.capacity == NO_COPY_CALLS
    assert Layout((), (TensorSpec("x", "uint8", (1 << 32,), (1,), 1),), (), 2).own.capacity == 1


def test_what_the_driver_does_not_know_is_closed_and_left_out(
    memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def refuse(number: int) -> Any:
        raise OSError("cuMemGetAddressRange failed with CUDA error 1")

    monkeypatch.setattr(cuda_ipc, "_adopted", refuse)
    monkeypatch.setattr(cuda_ipc, "_close", closed.append)
    assert not cuda_ipc.MappedMemory(LAYOUT).update([(1 << 30, 1, "aa"), (BASE, 1, "bb")])
    assert closed == [1, 2]


def test_inputs_lie_in_the_first_piece_and_nowhere_else(memory: dict[str, Any]) -> None:
    """An address next to another allocation would put them on odd bytes."""
    assert not cuda_ipc.MappedMemory(LAYOUT).update([(BASE + 1, 1, "cc"), (BASE, 1, "aa")])


def test_a_board_says_what_memory_there_is_and_opens_its_gate() -> None:
    control = ControlBlock(fd := os.memfd_create("control", os.MFD_ALLOW_SEALING), LAYOUT)
    assert control.read_allocations() == []
    allocations = [(number << 12, 1 + number, f"{number:0128x}") for number in range(SEGMENTS + 3)]
    control.write_allocations(allocations)
    assert control.read_allocations() == allocations[:SEGMENTS]
    control.write_allocations(allocations[:2])
    assert control.read_allocations() == allocations[:2]
    control.open_gate()
    control.open_gate()
    word = control.location[1] + 8 * OPENED
    assert int.from_bytes(os.pread(fd, 4, word), "little") == control.stats[OPENED] == 2
    control.clear()
    assert (control.read_allocations(), control.stats[OPENED]) == ([], 0)
    os.close(fd)


def test_parts_of_a_single_call_are_views_of_its_arena(memory: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    layout = Layout((X,), (X,), (OUT,), 1, tight=True)
    arena = Arena(torch.full((layout.arena_bytes,), 255, dtype=torch.uint8), layout)
    inputs, outputs = arena.inputs_alone(), arena.outputs_alone()
    inputs.inputs(0)["x"].fill_(3)
    outputs.outputs(0)[0].fill_(4)
    assert arena.inputs(0)["x"].tolist() == [3] * 8
    assert arena.outputs(0)[0].tolist() == [4] * 8
    assert inputs.layout == layout.own
    for whole, part in ((arena, inputs), (arena, outputs)):
        for begin, size in part.layout.frame_guards():
            assert part.frames(1)[:, begin : begin + size].unique().tolist() == [255]
        assert whole.flat.untyped_storage().data_ptr() == part.flat.untyped_storage().data_ptr()
    # What a worker reports as the memory of its inputs is not opened: it is that arena.
    mapped = cuda_ipc.MappedMemory(layout, inputs)
    assert mapped.update([(1 << 30, SIZE, "cc"), (BASE, SIZE, "bb")])
    assert mapped.own is inputs
    assert mapped.map_outputs(1, [BASE])
    mapped.copy()
    held = Arena(outputs.flat.clone(), outputs.layout)
    mapped.scatter(held)
    assert held.outputs(0)[0].view(torch.uint8).tolist() == [*range(32)]


def test_two_processes_may_size_a_file_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
    map_file(fd, 1 << 12)
    sized, answers = os.fstat(fd), [SimpleNamespace(st_size=0)]
    monkeypatch.setattr(os, "fstat", lambda number: answers.pop() if answers and number == fd else sized)
    assert len(map_file(fd, 1 << 12)) == 1 << 12  # it looked just before the other one had finished
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
