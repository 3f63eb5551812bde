"""Rounds without copies find candidates that skip them and clear those that pay; outputs are read from outside."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aisp_mcp.judge.evidence import Account, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.parent.processes import process_memory as remote
from aisp_mcp.judge.parent.timing import copy_cost
from aisp_mcp.judge.parent.timing.copy_cost import CallCost
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.protocol.shared_memory import ControlBlock, map_file
from aisp_mcp.judge.verdict import estimators, lower_bound

CALL, COPY = 300e-6, 200e-6


def rounds(baselines: float, candidate: float, scatter: float = 0.01) -> copy_cost.Costs:
    """Ten rounds per side of so many seconds a call, by the clock and of the processor's time."""
    seconds = {Role.BASELINE: baselines, Role.BASELINE_REPEAT: 1.01 * baselines, Role.CANDIDATE: candidate}
    return {
        side: [CallCost(s * (1 + scatter * turn / 5), s * (1 + scatter * turn / 10)) for turn in range(10)]
        for side, s in seconds.items()
    }


WITHOUT = rounds(CALL, CALL)
TIMED = rounds(CALL + COPY, CALL + COPY)
COLD = 80e-6  # what a call costs more where it is the only one of its round


@pytest.mark.parametrize(
    ("candidate", "found"),
    [
        (CALL + COPY, 0.0),
        (CALL + 0.95 * COPY, 0.0),
        (CALL + 0.6 * COPY, pytest.approx(0.3, abs=0.1)),
        (CALL + 0.1 * COPY, 1.0),
        (CALL, 1.0),
    ],
    ids=["pays", "pays nearly all", "spares some", "spares most", "spares all"],
)
def test_what_timed_rounds_do_not_show_was_not_paid(candidate: float, found: float) -> None:
    assert copy_cost.skipped_copies(rounds(CALL + COPY, candidate), WITHOUT, COPY) == found


def test_the_worse_of_both_clocks_counts() -> None:
    """A thread beside the calls would lengthen the processor's time, a process that ends in time shorten it."""
    pays, spares = TIMED[Role.CANDIDATE], rounds(CALL + COPY, CALL)[Role.CANDIDATE]
    for by_clock, by_processor in ((spares, pays), (pays, spares)):
        bent = [CallCost(clock, processor) for (clock, _), (_, processor) in zip(by_clock, by_processor, strict=True)]
        assert copy_cost.skipped_copies({**TIMED, Role.CANDIDATE: bent}, WITHOUT, COPY) == 1.0


@pytest.mark.parametrize(
    ("candidate", "alone", "found"),
    [
        (CALL + COPY, CALL + COPY + COLD, 0.0),
        (CALL, CALL + COLD, 1.0),
        (CALL, CALL + COPY + COLD, 1.0),
    ],
    ids=["a buffer", "spares", "spares, and makes single calls long"],
)
def test_single_calls_tell_where_a_buffer_is_used_again(candidate: float, alone: float, found: float) -> None:
    timed, single = rounds(CALL + COPY, candidate), rounds(CALL + COPY + COLD, alone)
    assert copy_cost.skipped_copies(timed, rounds(CALL + COLD, CALL + COLD), COPY, single) == found


def test_where_rounds_scatter_nobody_is_cleared_and_nobody_accused() -> None:
    loud = 2.0
    without = rounds(CALL, CALL, loud)
    assert copy_cost.skipped_copies(rounds(CALL + COPY, CALL + COPY, loud), without, COPY) is None
    assert copy_cost.skipped_copies(rounds(CALL + COPY, CALL + 0.6 * COPY, loud), without, COPY) is None


@pytest.mark.parametrize("scatter", [0.01, 0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("copy_s", [0.0, 2e-6, 10e-6, 50e-6, COPY])
def test_where_nothing_can_be_told_no_rounds_without_copies_are_asked_for(scatter: float, copy_s: float) -> None:
    """Whatever they showed, nobody would be cleared or accused."""
    hopeless = set()
    for candidate in (0.1, 0.5, 1.0, 2.0):
        timed = rounds(CALL + copy_s, candidate * CALL + copy_s, scatter)
        seen = {
            copy_cost.skipped_copies(timed, rounds(due * CALL, paid_s * CALL, noise), copy_s)
            for due in (0.2, 0.9, 1.0)
            for paid_s in (0.05, 0.5, 1.0)
            for noise in (0.0, 0.1)
        }
        hopeless.add(copy_cost.hopeless(timed, copy_s))
        if copy_cost.hopeless(timed, copy_s):
            assert seen == {None}
    assert scatter > 0.01 or hopeless == {False}
    assert scatter < 3.0 or True in hopeless


def test_nobody_is_cleared_where_the_baselines_do_not_show_that_they_pay() -> None:
    """Rounds without copies take as long: their outputs lie in memory that is touched for the first time."""
    assert copy_cost.skipped_copies(rounds(CALL, CALL), rounds(CALL + COPY, CALL), COPY) is None


def test_where_calls_are_long_their_scatter_is_not_taken_for_copies() -> None:
    """The candidate is 50 times faster and pays its 2 us; the baselines' rounds are 15 us apart for other reasons."""
    timed, read = rounds(700e-6, 16.1e-6), rounds(685e-6, 14e-6)
    assert not copy_cost.skipped_copies(timed, read, 2e-6)


@pytest.mark.parametrize(
    ("spared", "coarse", "least"),
    [(0.0, False, None), (None, False, 1.5), (0.0, True, 3 / 1.1)],
    ids=["copies were seen", "copies were not seen", "calls as short as the loop around them"],
)
def test_a_gain_is_proven_as_far_as_it_does_not_rest_on_what_is_subtracted(
    spared: float | None, coarse: bool, least: float | None
) -> None:
    one = Replicate(0, overhead=Overhead(0.0, COPY, skipped_copies=spared))
    for side in (*Role, *reversed(Role)):
        call_s = COPY * (1 if side == Role.CANDIDATE else 3)
        elapsed_s = 20 * (call_s + COPY)
        one.rounds.append(
            Round(side, call_s, call_s, RoundTiming(20, elapsed_s, [round(1e9 * call_s)] * 20, Account()))
        )
    flag = lower_bound.finding([one], [math.log(3)], coarse)
    assert (flag.evidence["ratio_lower_bound"] if flag else None) == (pytest.approx(least) if least else None)


def test_nothing_makes_the_clock_coarse_of_who_spares_its_copies() -> None:
    assert estimators.parent_resolution([Replicate(0, overhead=Overhead(0.0, COPY, skipped_copies=1.0))]) == 0.0


def test_of_a_side_that_spares_copies_only_the_round_itself_is_subtracted() -> None:
    """A round's fixed cost is known from rounds of at least one call, so it holds one copy."""
    paying = Overhead(100e-6 + COPY, COPY * 19 / 20, without_copies_s=100e-6)
    sparing = replace(paying, skipped_copies=1.0)
    assert paying.net(100e-6 + 20 * (CALL + COPY), 20, skipped_s=paying.skipped_s(20)) == pytest.approx(CALL)
    assert sparing.net(100e-6 + 20 * CALL, 20, skipped_s=sparing.skipped_s(20)) == pytest.approx(CALL)


# --- reading from outside

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


def test_outputs_are_read_from_where_the_worker_says(
    stopped: tuple[int, list[int]], memory: tuple[ControlBlock, int]
) -> None:
    (pid, addresses), (control, arena) = stopped, memory
    for call, address in enumerate(addresses):
        control.addresses[call] = address
    try:
        assert remote.fetch(pid, control, map_file(arena, LAYOUT.arena_bytes), 3)
    except PermissionError:
        pytest.skip("here no process may read its child's memory")
    for call, letter in enumerate(b"ABC"):
        ((_, offset),) = LAYOUT.place_outputs(call)
        assert os.pread(arena, 1024, offset) == bytes([letter]) * 1024


def test_outputs_that_lie_on_each_other_are_not_read(
    stopped: tuple[int, list[int]], memory: tuple[ControlBlock, int]
) -> None:
    (pid, (first, *_)), (control, arena) = stopped, memory
    for call in range(3):
        control.addresses[call] = first + 512 * call
    assert not remote.fetch(pid, control, map_file(arena, LAYOUT.arena_bytes), 3)
    assert not any(os.pread(arena, LAYOUT.arena_bytes, 0))


@pytest.mark.parametrize("address", [0, -1, 1 << 46], ids=["nothing", "the kernel's", "not mapped"])
def test_an_address_where_nothing_lies_is_an_error(
    stopped: tuple[int, list[int]], memory: tuple[ControlBlock, int], address: int
) -> None:
    (pid, _), (control, arena) = stopped, memory
    control.addresses[0] = address
    with pytest.raises(OSError, match=r"Bad address|Operation not permitted|Function not implemented"):
        remote.fetch(pid, control, map_file(arena, LAYOUT.arena_bytes), 1)
