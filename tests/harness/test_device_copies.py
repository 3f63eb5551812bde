"""Who spares copies on a GPU is found, and memory of a worker is reached only where it is. No GPU is needed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from aisp_mcp.harness import reached
from aisp_mcp.harness.device_copies import LEAST_ROUNDS, Shown
from aisp_mcp.harness.layout import SEGMENTS, Layout, TensorSpec
from aisp_mcp.harness.memory import Arena, Board

CALL, COPY, FLUSH, DOUBT = 100e-6, 50e-6, 90e-6, 1e-6
STEPS = (0.0, 1e-6, 2e-6, 8e-6)  # what rounds are longer than the least of them


def shown(
    paid: float,
    *,
    call_s: float = CALL,
    due_s: float = COPY,
    steps: tuple[float, ...] = STEPS,
    reads: tuple[float, ...] = STEPS,
) -> Shown:
    without = FLUSH + call_s
    return Shown(due_s, DOUBT, call_s, [without + paid + s for s in steps], [without + s for s in reads])


@pytest.mark.parametrize(
    ("found", "spared"),
    [
        (shown(COPY), 0.0),
        (shown(0.95 * COPY), 0.0),
        (shown(0.7 * COPY), pytest.approx(0.22)),  # a third, but for 4 of 50 us that are conceded
        (shown(0.1 * COPY), 1.0),
        (shown(0.0), 1.0),
        (shown(0.0, due_s=2e-6), 0.0),
        (shown(COPY, steps=(0.0, 60e-6, 70e-6), reads=(0.0, 80e-6, 90e-6)), 0.0),
        (shown(0.0, steps=(0.0, 60e-6, 70e-6), reads=(0.0, 80e-6, 90e-6)), 1.0),
        (shown(0.0, steps=(COPY, COPY, COPY)), 0.0),
        (shown(0.0, call_s=4e-6, due_s=10e-6), 1.0),
        (shown(10e-6, call_s=4e-6, due_s=10e-6), 0.0),
    ],
    ids=[
        "pays",
        "pays nearly all",
        "spares some",
        "spares most",
        "spares all",
        "spares next to nothing",
        "pays, and rounds scatter",
        "spares all, and rounds scatter",
        "spares all, and takes as long in timed rounds",
        "a short call, spared",
        "a short call, paid",
    ],
)
def test_what_timed_rounds_do_not_show_was_not_paid(found: Shown, spared: float | None) -> None:
    assert found.spared() == spared


def test_nothing_is_told_by_few_rounds_or_wrong_ones() -> None:
    few, wrong = shown(COPY), shown(COPY)
    few.read, wrong.why = few.read[: LEAST_ROUNDS - 1], "call 3: error"
    assert few.spared() is wrong.spared() is None


OUT = TensorSpec("out", "float32", (8,), (1,), 4)
LAYOUT = Layout((), (TensorSpec("x", "float32", (8,), (1,), 4),), (OUT,), 4)
BASE = 1 << 20  # where the worker says its memory begins


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Memory by handle, in place of what a driver would open."""
    torch = pytest.importorskip("torch")
    memory = {"aa": torch.arange(LAYOUT.own.arena_bytes, dtype=torch.int64).to(torch.uint8), "bb": torch.zeros(256)}
    memory["bb"] = torch.arange(512, dtype=torch.int64).to(torch.uint8)
    numbers = {handle: place + 1 for place, handle in enumerate(memory)}
    monkeypatch.setattr(reached, "_opened", numbers.get)
    monkeypatch.setattr(reached, "_adopted", lambda number: memory[list(memory)[number - 1]])
    return memory


@pytest.mark.parametrize(
    ("addresses", "whole"),
    [
        ([BASE, BASE + 64], True),
        ([BASE, BASE + 31], False),
        ([BASE, BASE + 512 - 31], False),
        ([BASE, BASE - 1], False),
        ([BASE, 0], False),
    ],
    ids=["apart", "on each other", "beyond the end", "before the beginning", "nowhere"],
)
def test_outputs_are_fetched_from_where_they_lie(driver: dict[str, Any], addresses: list[int], whole: bool) -> None:
    torch = pytest.importorskip("torch")
    one = reached.Reached(LAYOUT)
    # The size that a worker states is not believed, and a handle that opens nothing is left out.
    assert one.update([(1 << 30, 1, "aa"), (BASE, 1 << 40, "bb"), (2 << 20, 1 << 40, "cc")])
    held = Arena(torch.zeros(LAYOUT.arena_bytes, dtype=torch.uint8), LAYOUT)
    assert one.fetch(held, 2, addresses) is whole
    if whole:
        for call, address in enumerate(addresses):
            ((_, at),) = LAYOUT.place_outputs(call)
            assert held.flat[at : at + 32].tolist() == driver["bb"][address - BASE : address - BASE + 32].tolist()


def test_inputs_of_its_own_need_room(driver: dict[str, Any]) -> None:
    one = reached.Reached(LAYOUT)
    assert one.update([(1 << 30, 1, "aa")])
    assert one.own is not None
    assert list(one.own.inputs(3)) == ["x"]
    driver["aa"] = driver["aa"][:-1]
    other = reached.Reached(LAYOUT)
    assert not other.update([(1 << 30, LAYOUT.own.arena_bytes, "aa")])
    assert other.own is None


def test_a_board_says_what_memory_there_is() -> None:
    board = Board(fd := os.memfd_create("board", os.MFD_ALLOW_SEALING), LAYOUT)
    assert board.read_pieces() == []
    pieces = [(number << 12, 1 + number, f"{number:0128x}") for number in range(SEGMENTS + 3)]
    board.write_pieces(pieces)
    assert board.read_pieces() == pieces[:SEGMENTS]
    board.write_pieces(pieces[:2])
    assert board.read_pieces() == pieces[:2]
    board.clear()
    assert board.read_pieces() == []
    os.close(fd)
