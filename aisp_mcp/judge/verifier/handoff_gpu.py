"""GPU rounds whose inputs arrive one call at a time, so that no call can be merged with others.

The device does everything that handoff_cpu.py does on a CPU. For each call, the verifier enqueues in its own stream:
wait for the worker's number in the control block, write the inputs, flush the L2, announce them by a number, wait for
the worker's next number, and copy the outputs. Two processes take turns on a device. A turn takes some 140 µs to begin,
constant within a fraction of a microsecond, so every call, of any program, is longer by that. The verifier's clock runs
from before the inputs are written until its own turn after the worker's number, in which it also takes the outputs.
That turn comes when the device has no work left for the worker, or in the middle of it. So a worker that answers early
gains nothing or has wrong outputs, and one that starts on the first bytes of an input starts after the clock.

With the stream gate, only the worker's stream waits for inputs, and its process is stopped: between two turns, its host
could do the work of a short call. Without the gate, its host launches each call, and the measured time includes that.

Also what the verifier does around such rounds: wait for a worker's answer, time the smallest kernel, which shows when
its process has its turn on the device, and wait for the memory's bandwidth, which the driver shares while it clears
what processes have returned.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.cuda_ipc import MappedMemory, Staged
from aisp_mcp.judge.protocol.layout import FLUSH_BYTES, Layout
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, ENDED, ENQUEUED, HANDED_OVER, Arena, ControlBlock, Gate

# Calls of a round, and seconds of the slowest program that a round with the gate takes at most, since host time is
# excluded. Chosen: rounds of 0.2 ms hid early answers on an H200 (commit 8ab1316f).
CALLS, ROUND_S = 7, 2e-3
# Calls of a round without the gate: fewest, and usual (least, most). The first calls after a pause take longer, and the
# median must not be one of them. Chosen: six of 14 may.
MIN_UNGATED, UNGATED_CALLS = 3, (14, 16)
PATIENCE_S = 1.0  # until a device with nothing left to wait for has finished; chosen: thousands of turns
HELD = "DEVICE_HELD"
# Of fills that show the memory's bandwidth: seconds of calibration, longer than the 28 ms that the driver of an H100
# takes to clear 12 GiB; most seconds of a wait; times the fastest fill from which on one is slow (1.17 to 1.24 while
# memory is cleared, otherwise at most 1.07); and fills of the usual time in a row that end a wait (chosen).
# docs/decisions/0097-wait-until-returned-memory-is-cleared.md.
CALIBRATION_S, MOST_S, SLOW, IN_A_ROW = 0.1, 0.15, 1.1, 5


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


def await_answer(control: ControlBlock, pipe: str = "", ended: int = 0, deadline_s: float = 0.0) -> None:
    """Return when the worker's device has ended more than `ended` rounds, when the pipe holds data, or when no process
    is left that could write to it. It polls without sleeping: waking up takes long enough for a worker that answers
    early to finish its work.
    """
    if not pipe:
        return
    end, poll, fd = clock() + deadline_s, select.poll(), _opened(pipe)
    try:
        poll.register(fd, select.POLLIN)
        while control.stats[ENDED] == ended and not poll.poll(0) and clock() < end:
            pass
    finally:
        os.close(fd)


def _opened(pipe: str) -> int:
    """Open the pipe by its path in /proc. Raises BenchmarkError if this process may not see its parent's."""
    try:
        return os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        message = f"The verifier cannot open a worker's pipe through /proc: {error.strerror}."
        hint = "A GPU is measured where a process may read /proc of another one of the same user."
        raise BenchmarkError("VERIFIER_BLIND", message, hint) from error


class SmallestKernel:
    """Sets a single number. spot: that number, on the device."""

    def __init__(self, device: str) -> None:
        import torch

        self.spot = torch.zeros(1, device=device)
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device == "cuda" else []

    def run(self, then: Callable[[], object] = lambda: None) -> dict[str, float]:
        """probe_s: seconds that it takes now. at_s: the clock when it was done.

        then: enqueues work directly after it, while this process has its turn on the device: during a pause, another
        process's work would continue. Neither figure includes that work.
        """
        begin = clock()
        self.spot.zero_()
        if not self._marks:
            then()
            at_s = clock()
        else:
            done, end = self._marks
            done.record()
            then()
            end.record()
            end.synchronize()
            at_s = clock() - done.elapsed_time(end) / 1e3
        return {"probe_s": at_s - begin, "at_s": at_s}


class Bandwidth:
    """Repeated fills of some memory. fill_s: fills it and returns the seconds that it took. best_s: the fastest."""

    def __init__(self, fill_s: Callable[[], float], now: Callable[[], float] = clock) -> None:
        self._fill_s, self._now = fill_s, now
        end, self.best_s = now() + CALIBRATION_S, fill_s()
        while now() < end:
            self.best_s = min(self.best_s, fill_s())

    def await_all(self) -> None:
        """Wait until the whole bandwidth is available, at most MOST_S."""
        end, usual = self._now() + MOST_S, 0
        while usual < IN_A_ROW and self._now() < end:
            seconds = self._fill_s()
            usual = usual + 1 if seconds <= SLOW * self.best_s else 0
            self.best_s = min(self.best_s, seconds)


@cache
def _of_device() -> Bandwidth:
    import torch

    memory = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def fill_s() -> float:
        begin.record()
        memory.zero_()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return Bandwidth(fill_s)


def await_bandwidth(layout: Layout) -> None:
    """Wait until the driver has cleared memory, if processes take turns with it."""
    if layout.tight:
        _of_device().await_all()
