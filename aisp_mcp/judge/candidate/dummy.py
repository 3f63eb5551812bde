"""Dummy calls in place of a baseline's: new outputs of the right shape and type, as warm in the caches as computed
ones. Libraries of matrix products are loaded before a program's first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.module_loader import copied

# Device clock cycles: about 0.6 ms for one call and 60 µs for each of several; the real length comes from the events
# around it.
DUMMY_CYCLES, SHORT_CYCLES = 1_000_000, 100_000


def on_cpu(output: Any) -> Callable[..., Any]:
    """A call that returns a copy of an output."""
    return lambda **_: copied(output)


def on_gpu(example: Any, pairs: Iterable[tuple[Any, Any]], stream: Any, count: int) -> Callable[..., Any]:
    """The same on a GPU, keeping the device busy between the events of each call, as a kernel would."""
    import torch

    events, cycles = iter(pairs), DUMMY_CYCLES if count == 1 else SHORT_CYCLES

    def dummy_call(**_: Any) -> Any:
        begin, end = next(events)
        begin.record(stream)
        torch.cuda._sleep(cycles)
        output = copied(example)
        end.record(stream)
        return output

    return dummy_call


TYPES = {"float32", "float16", "bfloat16"}  # whose libraries load at first use


def load(layout: Layout) -> None:
    """Load the library for the tensors' types while other processes prepare: in a first call it would take 65 ms. This
    runs after the program's import, whose settings apply to it, and on a separate stream, so that its workspace is not
    shared.
    """
    import torch

    types = {spec.dtype for spec in (*layout.params, *layout.inputs)} & TYPES
    with suppress(Exception), torch.cuda.stream(torch.cuda.Stream()):  # the program may have forbidden it
        for name in types:
            square = torch.zeros(16, 16, dtype=getattr(torch, name), device="cuda")
            square @ square
    torch.cuda.synchronize()
