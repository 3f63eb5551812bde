"""The mode of GPU rounds: each event makes another value, and never a better mode within a comparison."""

from __future__ import annotations

import pytest

from aisp_mcp.judge.parent.timing.gpu.mode import (
    MAX_STALLED,
    CallTimed,
    DeviceBusy,
    Event,
    GateFails,
    MissesGate,
    Mode,
    Modes,
    NeedsCopies,
    OutputsUnreadable,
    ReplicateBegins,
    Stalls,
    next_mode,
)
from aisp_mcp.judge.protocol.layout import NO_COPY_CALLS
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED


def after(*events: Event, mode: Mode | None = None) -> Mode:
    mode = mode or Mode()
    for event in events:
        mode = next_mode(mode, event)
    return mode


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([GateFails("why")], Mode(gated=False, reasons=("why",))),
        ([CallTimed(1e-3), GateFails("why")], Mode(gated=False, reasons=("why",))),  # with the host it takes longer
        ([NeedsCopies("one"), NeedsCopies("two")], Mode(copies=True, reasons=("one", "two"))),
        ([OutputsUnreadable("first", False), OutputsUnreadable("x", True)], Mode(stored="first", unreadable=True)),
        ([MissesGate(100)], Mode(max_calls=75)),
        ([MissesGate(100), MissesGate(75)], Mode(max_calls=18)),
        ([ReplicateBegins(on_host=False)], Mode()),
        ([DeviceBusy(), ReplicateBegins(on_host=False)], Mode()),
        ([DeviceBusy()] * (MAX_DISCARDED + 1), Mode(discarded=MAX_DISCARDED + 1)),
        ([Stalls()] * MAX_STALLED, Mode(stalled=MAX_STALLED)),
    ],
)
def test_events_lead_to_the_mode_that_a_program_can_run_in(events: list[Event], expected: Mode) -> None:
    assert after(*events) == expected


def test_what_happens_too_often_ends_the_gate_or_reading_in_place() -> None:
    assert not after(*[Stalls()] * (MAX_STALLED + 1)).gated
    assert not after(*[DeviceBusy(gated=True)] * (MAX_DISCARDED + 1)).gated
    moved = after(*[DeviceBusy(moved=True, isolated=True)] * (MAX_DISCARDED + 1))
    assert (bool(moved.stored), moved.unreadable, moved.gated, moved.discarded) == (True, True, True, 0)
    assert not after(MissesGate(2)).gated
    assert not after(ReplicateBegins(on_host=True)).gated
    assert after(MissesGate(2), ReplicateBegins(on_host=True)).reasons == after(MissesGate(2)).reasons


def test_both_baselines_share_a_mode_and_the_candidate_has_its_own() -> None:
    modes = Modes()
    before = modes.decisive
    modes.change(Role.BASELINE_REPEAT, NeedsCopies("why"))
    assert modes.of(Role.BASELINE).copies
    assert not modes.of(Role.CANDIDATE).copies
    assert modes.decisive != before
    assert modes.of(Role.CANDIDATE).max_calls == NO_COPY_CALLS
