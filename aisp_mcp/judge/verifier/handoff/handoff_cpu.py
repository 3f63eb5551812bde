"""The verifier's part of isolated calls on a CPU: it hands over the inputs one call at a time.

In any other round the inputs of all calls lie in memory from its first call on, and one pass over all of them may cost
hardly more than one call. Here the verifier keeps them to itself. It writes those of one call, says so by a number in
the control block, reads its clock when the worker's number says that the call is done, and takes the outputs away
before the next inputs come: later writes are hardly seen. Both sides wait without sleeping, on cores of their own, and
see each other's numbers within a microsecond.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager

from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, HANDED_OVER, Arena, ControlBlock

CHUNK = 1 << 16  # bytes of outputs that are copied at a time


def run(staged: Arena, arena: Arena, control: ControlBlock, count: int, deadline_s: float) -> tuple[Arena, list[float]]:
    """Contents of a worker's arena when each call was reported done, and the seconds of each call."""
    import torch

    layout, stats, seconds, outputs = arena.layout, control.stats, list[float](), arena.layout.inputs_end
    held = Arena(torch.empty(layout.params_bytes + count * layout.frame, dtype=torch.uint8), layout)
    restored, given, left, taken = (
        [memoryview(row.numpy()) for row in rows]
        for rows in (staged.input_bytes(count), arena.input_bytes(count), arena.frames(count), held.frames(count))
    )
    places = range(outputs, layout.frame, CHUNK)
    chunks = [random.sample(places, len(places)) for _ in range(count)]
    held.flat.zero_()  # or the first touch of each page would take its time between a call and a look at its outputs
    end = clock() + deadline_s
    with _undisturbed():
        for call in range(count):
            while stats[ANSWERED] <= call and clock() < end:
                pass
            given[call][:] = restored[call]
            begin = clock()
            stats[HANDED_OVER] = call + 1
            while stats[ANSWERED] <= call + 1 and clock() < end:
                pass
            seconds.append(clock() - begin)
            # First, and in an order that no worker knows: what is written meanwhile must not be seen.
            for at in chunks[call]:
                taken[call][at : at + CHUNK] = left[call][at : at + CHUNK]
            taken[call][:outputs] = left[call][:outputs]
    return held, seconds


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Run the block without this process's garbage collector."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
