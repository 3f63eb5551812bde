"""The mode of a program's parent-timed rounds on a GPU: an immutable value, and the one function that changes it.

Each program begins in the mode that proves most: its calls wait for the stream gate, their inputs are written into the
worker's own memory, and their outputs are read there. What its rounds show leads to a mode that it can run in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from aisp_mcp.judge.protocol.layout import NO_COPY_CALLS
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED

MIN_CALLS = 2  # per round, if memory allows; with the gate, one long call may be enough
MAX_STALLED = 2  # rounds of isolated calls that did not reach the wait for their inputs


@dataclass(frozen=True)
class Mode:
    """Settings of a program's rounds.

    copies: inputs and outputs are copied from and to the shared arena. stored: why outputs of back-to-back calls alone
    are; unreadable: those of isolated calls are, too. gated: calls wait for the stream gate, so only the device is
    timed. max_calls: calls that fit into the stream. call_s: seconds of one gated call, if known. discarded, stalled:
    rounds of this replicate that did not count. reasons: why a better mode is impossible.
    """

    copies: bool = False
    stored: str = ""
    unreadable: bool = False
    gated: bool = True
    max_calls: int = NO_COPY_CALLS
    call_s: float | None = None
    discarded: int = 0
    stalled: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def decisive(self) -> tuple[bool, ...]:
        """The part that must be the same in all rounds that are compared."""
        return self.copies, bool(self.stored), self.unreadable, self.gated


# --- events


@dataclass(frozen=True)
class ReplicateBegins:
    """on_host: inputs are in host memory, so a call begins there."""

    on_host: bool


@dataclass(frozen=True)
class GateFails:
    """Host and device must be timed together from now on."""

    reason: str


@dataclass(frozen=True)
class NeedsCopies:
    """The program works only with inputs and outputs in the shared arena."""

    reason: str


@dataclass(frozen=True)
class OutputsUnreadable:
    """Outputs cannot be read where they are. isolated: not even those of isolated calls."""

    reason: str
    isolated: bool


@dataclass(frozen=True)
class MissesGate:
    """Not all of the calls of a round waited at the gate."""

    calls: int


@dataclass(frozen=True)
class Stalls:
    """A round of isolated calls did not start to wait for its inputs, although the calls of a longer round did."""


@dataclass(frozen=True)
class DeviceBusy:
    """A round does not count because the device was not idle. gated: its calls waited at the gate. moved: instead, its
    outputs were at other addresses than announced. isolated: it was a round of isolated calls.
    """

    gated: bool = False
    moved: bool = False
    isolated: bool = False


@dataclass(frozen=True)
class CallTimed:
    """A gated call took that many seconds."""

    call_s: float


Event = ReplicateBegins | GateFails | NeedsCopies | OutputsUnreadable | MissesGate | Stalls | DeviceBusy | CallTimed


def next_mode(mode: Mode, event: Event) -> Mode:
    """The mode after an event."""
    match event:
        case ReplicateBegins(on_host):
            mode = replace(mode, discarded=0, stalled=0)
            return next_mode(mode, GateFails(wording.INPUTS_ON_HOST)) if on_host and mode.gated else mode
        case GateFails(reason):
            return replace(mode, gated=False, call_s=None, reasons=(*mode.reasons, reason))
        case NeedsCopies(reason):
            return replace(mode, copies=True, reasons=(*mode.reasons, reason))
        case OutputsUnreadable(reason, isolated):
            return replace(mode, stored=mode.stored or reason, unreadable=mode.unreadable or isolated)
        case MissesGate(calls) if calls > MIN_CALLS:
            # Three quarters still last long enough; if they do not fit either, the count was far off.
            first = mode.max_calls == NO_COPY_CALLS
            return replace(mode, max_calls=max(-(-3 * calls // 4) if first else calls // 4, MIN_CALLS))
        case MissesGate():
            return next_mode(mode, GateFails(wording.WAITS_FOR_ITS_DEVICE))
        case Stalls():
            mode = replace(mode, stalled=mode.stalled + 1)
            too_often = GateFails(wording.CALLS_CANNOT_WAIT)
            return next_mode(mode, too_often) if mode.stalled > MAX_STALLED else mode
        case DeviceBusy(gated, moved, isolated):
            mode = replace(mode, discarded=mode.discarded + 1)
            if mode.discarded <= MAX_DISCARDED or not (gated or moved):
                return mode
            if moved:
                why: Event = OutputsUnreadable(wording.OUTPUTS_MOVE, isolated)
            else:  # such as with several streams that wait for each other
                why = GateFails(wording.DEVICE_BUSY_AT_GATE)
            return replace(next_mode(mode, why), discarded=0)
        case CallTimed(call_s):
            return replace(mode, call_s=call_s)


class Modes:
    """The current modes of the baseline and of the candidate. Both baselines of a replicate share one."""

    def __init__(self, baseline: Mode | None = None, candidate: Mode | None = None) -> None:
        self.baseline, self.candidate = baseline or Mode(), candidate or Mode()

    def of(self, role: Role) -> Mode:
        return self.candidate if role is Role.CANDIDATE else self.baseline

    def change(self, role: Role, event: Event) -> None:
        """Replace the mode of that role's program by the next one."""
        if role is Role.CANDIDATE:
            self.candidate = next_mode(self.candidate, event)
        else:
            self.baseline = next_mode(self.baseline, event)

    def __iter__(self) -> Iterator[Mode]:
        return iter((self.baseline, self.candidate))

    @property
    def decisive(self) -> tuple[tuple[bool, ...], ...]:
        """A change of it makes earlier rounds useless."""
        return tuple(mode.decisive for mode in self)
