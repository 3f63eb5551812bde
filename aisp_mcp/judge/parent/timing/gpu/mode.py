"""The mode of a program's parent-timed rounds on a GPU: an immutable value, whose methods make the next one.

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
    rounds of this replicate that did not count. reasons: why a better mode is impossible. Each method returns the mode
    after what a round has shown.
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

    def in_replicate(self, on_host: bool) -> Mode:
        """A replicate begins. on_host: inputs are in host memory, so a call begins there."""
        mode = replace(self, discarded=0, stalled=0)
        return mode.without_gate(wording.INPUTS_ON_HOST) if on_host and mode.gated else mode

    def without_gate(self, reason: str) -> Mode:
        """Host and device must be timed together from now on."""
        return replace(self, gated=False, call_s=None, reasons=(*self.reasons, reason))

    def with_copies(self, reason: str) -> Mode:
        """The program works only with inputs and outputs in the shared arena."""
        return replace(self, copies=True, reasons=(*self.reasons, reason))

    def with_unreadable(self, reason: str, isolated: bool) -> Mode:
        """Outputs cannot be read where they are. isolated: not even those of isolated calls."""
        return replace(self, stored=self.stored or reason, unreadable=self.unreadable or isolated)

    def missed_gate(self, calls: int) -> Mode:
        """Not all of the calls of a round waited at the gate."""
        if calls <= MIN_CALLS:
            return self.without_gate(wording.WAITS_FOR_ITS_DEVICE)
        # Three quarters still last long enough; if they do not fit either, the count was far off.
        first = self.max_calls == NO_COPY_CALLS
        return replace(self, max_calls=max(-(-3 * calls // 4) if first else calls // 4, MIN_CALLS))

    def stalls(self) -> Mode:
        """A round of isolated calls did not start to wait for its inputs, although the calls of a longer round did."""
        mode = replace(self, stalled=self.stalled + 1)
        return mode.without_gate(wording.CALLS_CANNOT_WAIT) if mode.stalled > MAX_STALLED else mode

    def on_busy_device(self, gated: bool = False, moved: bool = False, isolated: bool = False) -> Mode:
        """A round does not count because the device was not idle. gated: its calls waited at the gate. moved: instead,
        its outputs were at other addresses than announced. isolated: it was a round of isolated calls.
        """
        mode = replace(self, discarded=self.discarded + 1)
        if mode.discarded <= MAX_DISCARDED or not (gated or moved):
            return mode
        mode = replace(mode, discarded=0)
        if moved:
            return mode.with_unreadable(wording.OUTPUTS_MOVE, isolated)
        return mode.without_gate(wording.DEVICE_BUSY_AT_GATE)  # such as with several streams that wait for each other


class Modes:
    """The current modes of the baseline and of the candidate. Both baselines of a replicate share one."""

    def __init__(self, baseline: Mode | None = None, candidate: Mode | None = None) -> None:
        self.baseline, self.candidate = baseline or Mode(), candidate or Mode()

    def of(self, role: Role) -> Mode:
        return self.candidate if role is Role.CANDIDATE else self.baseline

    def change(self, role: Role, mode: Mode) -> None:
        """Replace the mode of that role's program."""
        if role is Role.CANDIDATE:
            self.candidate = mode
        else:
            self.baseline = mode

    def __iter__(self) -> Iterator[Mode]:
        return iter((self.baseline, self.candidate))

    @property
    def decisive(self) -> tuple[tuple[bool, ...], ...]:
        """A change of it makes earlier rounds useless."""
        return tuple(mode.decisive for mode in self)
