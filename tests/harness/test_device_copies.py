"""Who spares copies on a GPU is found, and memory of a worker is reached only where it is. No GPU is needed."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.harness import reached
from aisp_mcp.harness.device_copies import without_copies
from aisp_mcp.harness.layout import SEGMENTS, Layout, TensorSpec
from aisp_mcp.harness.memory import Arena, Board
from aisp_mcp.harness.proc import Account
from aisp_mcp.harness.protections import ALL
from aisp_mcp.harness.shim import READ, WARM
from aisp_mcp.harness.timing import CANDIDATE, Overhead
from aisp_mcp.harness.trial import Replicate
from aisp_mcp.harness.workers import Lap

OUT = TensorSpec("out", "float32", (8,), (1,), 4)
LAYOUT = Layout((), (TensorSpec("x", "float32", (8,), (1,), 4),), (OUT,), 4)
BASE = 1 << 20  # where the worker says its memory begins
CALL, COPY, FLUSH, DOUBT, FIXED, CALLS = 100e-6, 50e-6, 90e-6, 1e-6, 1e-3, 20
CONCEDED = 0.03 * CALL + DOUBT
STEPS = (2e-6, 0.0, 8e-6, 1e-6)  # what rounds are longer than the least of them


class Candidate:
    """A trial whose candidate takes so many seconds per call in rounds of each kind; None for `read`: it raises."""

    first, ended = 0, False

    def __init__(self, timed: float, read: float | None, bare: float, *, late: bool = False, own_s: float = CALL):
        self.seconds = {READ: read, READ | WARM: bare}
        self.is_late, self.asked, self.turn = late, list[str](), 0
        board = SimpleNamespace(read_pieces=lambda: [(BASE, 1, "aa")], addresses=[0] * 64, layout=LAYOUT)
        self.workers = {CANDIDATE: SimpleNamespace(board=board, refuse_work_outside=lambda: None)}
        self.result = Replicate(0, late={CANDIDATE: 1})
        for step in STEPS:
            lap = self._took(timed + step)
            self.result.rounds.append((CANDIDATE, 0.0, own_s, lap))
        options = SimpleNamespace(protections=ALL)
        log = SimpleNamespace(append=lambda *_, **__: None)
        self.bench = SimpleNamespace(
            options=options, opened={"goal": "speed"}, log=log, draw=random.Random(1), ask=self._ask
        )

    def _took(self, per_call_s: float) -> Lap:
        return Lap(CALLS, FIXED + CALLS * per_call_s, [100_000] * CALLS, Account())

    def _ask(self, verb: str, **request: Any) -> dict[str, Any]:
        self.asked.append("let go" if request.get("pieces") == [] else verb)
        return {"own": True, "whole": True, "failure": None}

    def count(self, _: int) -> int:
        return CALLS

    def fill(self, counts: dict[int, int], own: bool) -> None:
        assert own
        assert list(counts) == [CANDIDATE]

    def guarded(self, _: int, action: Any) -> Any:
        return action()

    def lap_or_end(self, side: int, _: int, bits: int) -> Lap | None:
        self.turn += 1
        self.result.late[side] = self.result.late.get(side, 0) + self.is_late
        seconds = self.seconds[bits]
        return None if seconds is None else self._took(seconds + STEPS[self.turn // 2 % len(STEPS)])


COST = Overhead(FIXED, COPY + FLUSH, DOUBT, flush_s=FLUSH)
ALL_OF_IT = CALL + FLUSH + COPY


@pytest.mark.parametrize(
    ("candidate", "spared", "owed"),
    [
        (Candidate(ALL_OF_IT, CALL + FLUSH, CALL), 0.0, 0.0),
        (Candidate(ALL_OF_IT - 0.5 * CONCEDED, CALL + FLUSH, CALL), 0.0, 0.0),
        (Candidate(ALL_OF_IT, CALL + FLUSH, CALL + 0.2 * FLUSH), 0.0, 0.0),
        (Candidate(ALL_OF_IT - 20e-6, CALL + FLUSH, CALL), pytest.approx(0.32), pytest.approx(16e-6)),
        (Candidate(CALL + FLUSH, CALL + FLUSH, CALL), pytest.approx(0.92), pytest.approx(COPY - CONCEDED)),
        (Candidate(CALL + FLUSH, CALL, CALL), 0.0, pytest.approx(FLUSH)),
        (Candidate(CALL + COPY, CALL, CALL), 0.0, pytest.approx(FLUSH)),
        (Candidate(CALL + COPY, CALL + FLUSH, CALL), None, 0.0),
        (Candidate(CALL + FLUSH, CALL + FLUSH, CALL, own_s=1.0), pytest.approx(0.92, abs=0.05), None),
        (Candidate(ALL_OF_IT, CALL + FLUSH, CALL, late=True), None, 0.0),
        (Candidate(ALL_OF_IT, None, CALL), None, 0.0),
    ],
    ids=[
        "pays",
        "pays nearly all",
        "is so short that it waits for its host",
        "spares some",
        "spares all copies",
        "spares copies, and flushes where there are no copies",
        "spares flushes, too, where there are copies",
        "spares flushes where there are copies",
        "spares copies, and says that its calls are long",
        "answers early",
        "insists on its inputs",
    ],
)
def test_what_timed_rounds_do_not_show_is_owed(candidate: Candidate, spared: float | None, owed: float | None) -> None:
    unpaid: dict[int, float] = {}
    found = without_copies(candidate, COST, unpaid)  # type: ignore[arg-type]
    assert found.spared == spared
    if owed is not None:
        assert unpaid.get(CANDIDATE, 0.0) == pytest.approx(owed, abs=1e-12)
    assert candidate.asked.count("let go") == 1
    assert candidate.asked[-1] == "let go"
    assert candidate.result.late == {CANDIDATE: 1}


def test_flushes_that_timed_rounds_do_not_show_are_owed_once() -> None:
    unpaid = {CANDIDATE: 0.8 * FLUSH}
    without_copies(Candidate(CALL + COPY, CALL, CALL), COST, unpaid)  # type: ignore[arg-type]
    assert unpaid[CANDIDATE] == pytest.approx(FLUSH)


@pytest.mark.parametrize("own_s", [CALL, -1.0])
def test_nothing_is_asked_where_there_is_nothing_to_copy(own_s: float) -> None:
    candidate = Candidate(CALL + FLUSH, CALL + FLUSH, CALL, own_s=own_s)
    found = without_copies(candidate, Overhead(FIXED, FLUSH, DOUBT, flush_s=FLUSH), {})  # type: ignore[arg-type]
    assert (found.spared, candidate.asked) == (0.0, [])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Memory by handle, in place of what a driver would open."""
    torch = pytest.importorskip("torch")
    memory = {"aa": torch.arange(LAYOUT.own.arena_bytes, dtype=torch.int64).to(torch.uint8), "bb": torch.zeros(256)}
    memory["bb"] = torch.arange(512, dtype=torch.int64).to(torch.uint8)
    numbers = {handle: place + 1 for place, handle in enumerate(memory)}

    def open_handle(handle: str) -> int:
        if handle not in numbers:
            raise OSError("cudaIpcOpenMemHandle failed with CUDA error 1")
        return numbers[handle]

    monkeypatch.setattr(reached, "open_handle", open_handle)
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


def test_what_the_driver_does_not_know_is_closed_and_left_out(
    driver: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def refuse(number: int) -> Any:
        raise OSError("cuMemGetAddressRange failed with CUDA error 1")

    monkeypatch.setattr(reached, "_adopted", refuse)
    monkeypatch.setattr(reached, "_close", closed.append)
    assert not reached.Reached(LAYOUT).update([(1 << 30, 1, "aa"), (BASE, 1, "bb")])
    assert closed == [1, 2]


def test_inputs_lie_in_the_first_piece_and_nowhere_else(driver: dict[str, Any]) -> None:
    """An address beside another piece would put them on odd bytes."""
    assert not reached.Reached(LAYOUT).update([(BASE + 1, 1, "cc"), (BASE, 1, "aa")])


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
