"""GPU rounds whose inputs arrive one call at a time, so that no call can be merged with others.

The device does everything that handoff_cpu.py does on a CPU. For each call, the verifier enqueues in its own stream:
wait for the worker's number in the control block, write the inputs, flush the L2, announce them by a number, wait for
the worker's next number, and copy the outputs. Two processes take turns on a device. A turn takes some 140 µs to begin,
constant within a fraction of a microsecond, so every call, of any program, is longer by that. The verifier's clock runs
from before the inputs are written until its own turn after the worker's number, in which it also takes the outputs.
That turn comes when the device has no work left for the worker, or in the middle of it. So a worker that answers early
gains nothing or has wrong outputs, and one that starts on the first bytes of an input starts after the clock.

With the stream gate, only the worker's stream waits for inputs, and its process is stopped: between two turns, its host
could do the work of a short call. Without the gate, its host launches each call, and host time counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.cuda_ipc import MappedMemory, Staged
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, ENQUEUED, HANDED_OVER, Arena, ControlBlock, Gate

# Calls of a round. With the gate, at most this many seconds of the slowest program, since host time is excluded.
# Without it, the first calls after a pause take longer, and the median must not be one of them.
CALLS, ROUND_S = 7, 2e-3
MIN_UNGATED, UNGATED_CALLS = 3, (14, 16)
PATIENCE_S = 1.0  # until a device with nothing left to wait for has finished
HELD = "DEVICE_HELD"


@dataclass
class Handoff:
    """Buffers of a round's inputs and outputs. arena: the worker's. mapped: the worker's own memory, if its inputs are
    there; taken: copy its outputs, too. stored: outputs are in the arena.
    """

    arena: Arena
    mapped: MappedMemory | None
    count: int
    taken: bool
    stored: bool
    target: Arena = field(init=False)
    held: Arena = field(init=False)

    def __post_init__(self) -> None:
        layout = self.arena.layout
        self.held = Arena(self.arena.flat[: layout.params_bytes + self.count * layout.frame].clone(), layout)
        target = self.mapped.own if self.mapped else self.arena
        assert target is not None
        self.target = target

    def copy(self, call: int) -> None:
        """Enqueue a copy of the outputs of that call."""
        if not self.mapped or (self.stored and self.taken):
            self.held.frames(self.count)[call].copy_(self.arena.frames(self.count)[call])
        elif self.taken:
            self.mapped.copy(call)

    def whole(self) -> Arena:
        """The copied round."""
        if self.mapped:
            self.mapped.scatter(self.held)
        return self.held


def run(staged: Staged, held: Handoff, control: ControlBlock, gate: Gate, spot: Any, deadline_s: float) -> list[float]:
    """Return the seconds of each call by the device's clock, from the writing of its inputs to this process's next turn
    after the worker's number; an empty list if a number is missing. spot: a number on the device, written in that turn.
    Raises BenchmarkError HELD.
    """
    import torch

    stream = torch.cuda.current_stream()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(held.count)]
    gate.wait(stream, ENQUEUED, 1)  # or work would be enqueued while it is measured
    gate.wait(stream, ANSWERED, 1)
    for call, (begin, end) in enumerate(marks):
        begin.record(stream)
        staged.write_call(held.target, call)
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
    """Wait until the device has reached the event or time is up; return True if it has reached it."""
    while not event.query() and clock() < until_s:
        meanwhile()
    return bool(event.query())
