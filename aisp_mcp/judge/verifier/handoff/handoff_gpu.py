"""GPU rounds whose inputs arrive one call at a time, so that no call can be worked on together with others.

The device alone does the work of handoff_cpu.py here. The verifier enqueues in its own stream, for each call: wait for
the worker's number in the control block, write the inputs, empty the L2, say so by a number, wait for the worker's next
number and copy the outputs. Two processes take turns on a device, and a turn takes some 140 µs to
begin, always the same but for a fraction of a microsecond: so much longer is a call, for all sides. Its clock runs from
before the inputs are written until a turn of its own behind the number, on which the outputs are taken, too. A turn
comes when the device has nothing left to do for the worker, or in the middle of that; so who answers early gains
nothing, or its outputs are wrong, and who begins on the bytes of an input begins behind the clock.

Behind the gate the worker's stream alone waits for inputs, and the process stands still: between two turns its host
could do the work of a short call. Without the gate its host begins each call, and counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.cuda_ipc import MappedMemory, Staged
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, ENQUEUED, HANDED_OVER, Arena, ControlBlock, Gate

# Calls of a round. Behind the gate no more than fill so many seconds on the slowest side: no host is in their time.
# Without it the first calls behind a pause take longer, and the median must be one of the others.
CALLS, ROUND_S = 7, 2e-3
MIN_UNGATED, UNGATED_CALLS = 3, (14, 16)
PATIENCE_S = 1.0  # until a device that waits for nothing any longer has come to an end
HELD = "DEVICE_HELD"


@dataclass
class Handoff:
    """Buffers of a round's inputs and outputs. arena: the worker's. mapped: its own memory,
    where inputs and outputs lie there; taken: whether outputs of it are wanted.
    """

    arena: Arena
    mapped: MappedMemory | None
    count: int
    taken: bool
    place: Arena = field(init=False)
    held: Arena = field(init=False)

    def __post_init__(self) -> None:
        layout = self.arena.layout
        self.held = Arena(self.arena.flat[: layout.params_bytes + self.count * layout.frame].clone(), layout)
        target = self.mapped.own if self.mapped else self.arena
        assert target is not None
        self.place = target

    def copy(self, call: int) -> None:
        """Have the outputs of that call copied."""
        if not self.mapped:
            self.held.frames(self.count)[call].copy_(self.arena.frames(self.count)[call])
        elif self.taken:
            self.mapped.copy(call)

    def whole(self) -> Arena:
        """The round as it was taken."""
        if self.mapped:
            self.mapped.scatter(self.held)
        return self.held


def run(staged: Staged, held: Handoff, control: ControlBlock, gate: Gate, spot: Any, deadline_s: float) -> list[float]:
    """The seconds of each call by the device's clock, from the writing of its inputs to this process's next turn behind
    the worker's number; none where not all of them came. spot: something to write on that turn, a number on the device.
    Raises BenchmarkError HELD.
    """
    import torch

    stream = torch.cuda.current_stream()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(held.count)]
    gate.wait(stream, ENQUEUED, 1)  # or it would be laid while it is measured
    gate.wait(stream, ANSWERED, 1)
    for call, (begin, end) in enumerate(marks):
        begin.record(stream)
        staged.write_call(held.place, call)
        gate.say(stream, HANDED_OVER, call + 1)
        gate.wait(stream, ANSWERED, call + 2)
        spot.zero_()
        end.record(stream)
        held.copy(call)
    control.stats[ENQUEUED] = 1
    _, last = marks[-1]
    done = _ended(last, clock() + deadline_s, lambda: None)
    if not done and not _ended(last, clock() + PATIENCE_S, control.end_handoff):
        raise BenchmarkError(
            HELD, "A worker's device keeps the verifier's waiting.", "The candidate writes the numbers."
        )
    stream.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in marks] if done else []


def _ended(event: Any, until_s: float, meanwhile: Callable[[], None]) -> bool:
    """Wait until the device has reached the event or the time is over; true if it has reached it."""
    while not event.query() and clock() < until_s:
        meanwhile()
    return bool(event.query())
