"""The verifier's part of isolated calls on a CPU: it hands over the inputs one call at a time.

In any other round, the inputs of all calls are in memory from the first call on, and one pass over all of them may take
hardly longer than one call. Here the verifier withholds them. It writes the inputs of one call, announces them by a
number in the control block, reads its clock when the worker's number says that the call is done, and takes the outputs
before the next inputs arrive, so that it hardly sees later writes. Both processes poll without sleeping, on their own
cores, and see each other's numbers within a microsecond.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager

from aisp_mcp.judge.protocol.clock import clock, own_delay
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, HANDED_OVER, Arena, ControlBlock

CHUNK = 1 << 16  # bytes of outputs copied at a time; chosen: many of them, in an unknown order


def run(
    staged: Arena, arena: Arena, control: ControlBlock, count: int, deadline_s: float
) -> tuple[Arena, list[float], float]:
    """Return the contents of a worker's arena when each call was reported done, the seconds of each call, and those
    that this process waited for its core between the first call and the last.

    Before and after, it may wait for the parent, which begins the round and then stops the worker: with two cores, both
    use the same one. No call notices that.
    """
    import torch

    layout, stats, seconds, outputs = arena.layout, control.stats, list[float](), arena.layout.inputs_end
    held = Arena(torch.empty(layout.params_bytes + count * layout.frame, dtype=torch.uint8), layout)
    restored, given, left, taken = (
        [memoryview(row.numpy()) for row in rows]
        for rows in (staged.input_bytes(count), arena.input_bytes(count), arena.frames(count), held.frames(count))
    )
    offsets = range(outputs, layout.frame, CHUNK)
    chunks = [random.sample(offsets, len(offsets)) for _ in range(count)]
    held.flat.zero_()  # or page faults would delay the copy of a call's outputs
    end, delays_s = clock() + deadline_s, list[float]()
    with _undisturbed():
        for call in range(count):
            while stats[ANSWERED] <= call and clock() < end:
                pass
            if call in (0, count - 1):
                delays_s.append(own_delay())
            given[call][:] = restored[call]
            begin = clock()
            stats[HANDED_OVER] = call + 1
            while stats[ANSWERED] <= call + 1 and clock() < end:
                pass
            seconds.append(clock() - begin)
            # First, and in an order unknown to the worker, so that it cannot finish writing meanwhile.
            for at in chunks[call]:
                taken[call][at : at + CHUNK] = left[call][at : at + CHUNK]
            taken[call][:outputs] = left[call][:outputs]
    return held, seconds, delays_s[-1] - delays_s[0]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable this process's garbage collector for the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
