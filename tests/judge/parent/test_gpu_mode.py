"""The mode of GPU rounds: what a round shows makes another value, and never a better mode within a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aisp_mcp.judge.parent.timing.gpu.mode import MAX_STALLED, Mode, Modes
from aisp_mcp.judge.protocol.layout import NO_COPY_CALLS
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED


def repeated(times: int, change: Callable[[Mode], Mode]) -> Mode:
    mode = Mode()
    for _ in range(times):
        mode = change(mode)
    return mode


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode().without_gate("why"), Mode(gated=False, reasons=("why",))),
        (Mode(call_s=1e-3).without_gate("why"), Mode(gated=False, reasons=("why",))),  # with the host it takes longer
        (Mode().with_copies("one").with_copies("two"), Mode(copies=True, reasons=("one", "two"))),
        (Mode().with_unreadable("first", False).with_unreadable("x", True), Mode(stored="first", unreadable=True)),
        (Mode().missed_gate(100), Mode(max_calls=75)),
        (Mode().missed_gate(100).missed_gate(75), Mode(max_calls=18)),
        (Mode().in_replicate(on_host=False), Mode()),
        (Mode().on_busy_device().in_replicate(on_host=False), Mode()),
        (repeated(MAX_DISCARDED + 1, Mode.on_busy_device), Mode(discarded=MAX_DISCARDED + 1)),
        (repeated(MAX_STALLED, Mode.stalls), Mode(stalled=MAX_STALLED)),
    ],
)
def test_what_a_round_shows_leads_to_the_mode_that_a_program_can_run_in(mode: Mode, expected: Mode) -> None:
    assert mode == expected


def test_what_happens_too_often_ends_the_gate_or_reading_in_place() -> None:
    assert not repeated(MAX_STALLED + 1, Mode.stalls).gated
    assert not repeated(MAX_DISCARDED + 1, lambda mode: mode.on_busy_device(gated=True)).gated
    moved = repeated(MAX_DISCARDED + 1, lambda mode: mode.on_busy_device(moved=True, isolated=True))
    assert (bool(moved.stored), moved.unreadable, moved.gated, moved.discarded) == (True, True, True, 0)
    missed = Mode().missed_gate(2)
    assert not missed.gated
    assert not Mode().in_replicate(on_host=True).gated
    assert missed.in_replicate(on_host=True) == replace(missed, discarded=0)


def test_both_baselines_share_a_mode_and_the_candidate_has_its_own() -> None:
    modes = Modes()
    before = modes.decisive
    modes.change(Role.BASELINE_REPEAT, Mode().with_copies("why"))
    assert modes.of(Role.BASELINE).copies
    assert not modes.of(Role.CANDIDATE).copies
    assert modes.decisive != before
    assert modes.of(Role.CANDIDATE).max_calls == NO_COPY_CALLS
