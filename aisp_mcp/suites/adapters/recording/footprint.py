"""The size of a problem before all of it is made: its recipe, run on torch's device for shapes without data.

This takes over a second, since torch loads its symbolic mathematics for it. So a child does it while the problem is
recorded, and ends the recording if the problem cannot fit.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted, seeding
from aisp_mcp.judge.loading import flatten

# Each of the three workers, the verifier and the arena hold the tensors; the verifier holds them in float64 as well.
# On a GPU, processes take turns with the memory if a call takes much of it: an activation of 12 GiB was judged in 79.
COPIES, GPU_COPIES, WIDE_BYTES = 4, 3, 8
META = "meta"
SMALLER = "Set smaller sizes: --set of bench adapt and bench verify, --size of bench run."
GRACE_S = 0.7  # most problems are recorded by then, and the child ends before it has loaded anything


@dataclass(frozen=True)
class Footprint:
    """Bytes of a problem's tensors, and of a comparison; name and shape of the largest tensor."""

    own: int
    needed: int
    name: str
    shape: tuple[int, ...]

    def require(self, free: int) -> None:
        """Refuse a problem that does not fit into that many bytes. Raises BenchmarkError TOO_LARGE."""
        if self.needed > free:
            raise BenchmarkError(
                "TOO_LARGE",
                f"Inputs, parameters and outputs take {self.own / 2**30:.1f} GiB, the largest of them {self.name} with "
                f"the shape {tuple(self.shape)}; a comparison needs about {self.needed / 2**30:.0f} GiB, and "
                f"{free / 2**30:.0f} GiB are free.",
                SMALLER,
            )


def measured(reference: adapted.Reference, device: str = "cpu") -> Footprint | None:
    """The footprint of a problem; None if its recipe does not work without data, or makes no tensors."""
    tensors = shapes(reference)
    if not tensors:
        return None
    own = sum(tensor.nbytes for tensor in tensors.values())
    needed = (GPU_COPIES if device == "cuda" else COPIES) * own + WIDE_BYTES * sum(
        tensor.numel() for tensor in tensors.values()
    )
    name, largest = max(tensors.items(), key=lambda item: item[1].nbytes)
    return Footprint(own, needed, name, tuple(largest.shape))


@contextmanager
def watched(reference: adapted.Reference, device: str, refuse: Callable[[BenchmarkError], NoReturn]) -> Iterator[None]:
    """While a block runs, have a child measure the problem.

    refuse: ends this process. It is called in a thread, with the error TOO_LARGE, if the problem cannot fit into the
    memory that is free now. This process must not have used a GPU before.
    """
    answer, question = os.pipe()
    child = os.fork()
    if child == 0:
        _tell(reference, device, question)
    os.close(question)
    free = _free_bytes(device)  # after the fork: a copy of a process that has used the GPU cannot run torch

    def wait() -> None:
        with os.fdopen(answer) as pipe:
            text = pipe.read()
        try:
            if text:
                Footprint(**json.loads(text)).require(free)
        except BenchmarkError as error:
            refuse(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    try:
        yield
    except Exception:  # perhaps for lack of memory
        waiter.join()
        raise
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        waiter.join()


def _tell(reference: adapted.Reference, device: str, pipe: int) -> NoReturn:
    """In the child: write the footprint as JSON, or nothing."""
    try:
        os.nice(10)  # on a busy machine the recording goes first
        time.sleep(GRACE_S)
        measured_bytes = measured(reference, device)
        os.write(pipe, json.dumps(vars(measured_bytes)).encode() if measured_bytes else b"")
    finally:
        os._exit(0)


def shapes(reference: adapted.Reference) -> dict[str, Any] | None:
    """Tensors without data: inputs, static tensors and outputs, by name. None if the recipe needs data."""
    import torch

    tensors: dict[str, Any] = {}
    try:
        with seeding.seeded(0), torch.device(META):
            arguments = reference.named(reference.draw(), tensors)
            static = reference.state()
    except Exception:  # raised by the user's code, which may do anything with its data
        return None
    if any(tensor.device.type != META for tensor in (*tensors.values(), *static.values())):
        return None
    before, reference.arguments = reference.arguments, arguments
    try:
        outputs = dict(flatten(reference.run(**tensors, **static)))
        return {
            **tensors,
            **static,
            **{name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)},
        }
    except Exception:  # an operation whose shape depends on data
        return {**tensors, **static}
    finally:
        reference.arguments = before


def _free_bytes(device: str) -> int:
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
