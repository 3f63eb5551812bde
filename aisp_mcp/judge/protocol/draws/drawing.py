"""Random numbers in host memory, drawn on all cores of the comparison.

torch draws on one core. Here a large tensor is drawn in pieces, each with its own generator, so the values depend only
on the seeds and not on the number of cores. Inputs are drawn while no worker runs, and the threads block between draws,
so the measured cores can take part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PIECE = 1 << 18  # elements; half a millisecond on one core

_threads: list[ThreadPoolExecutor] = []


def use_cores(cpus: Iterable[int]) -> None:
    """Draw on these cores from now on; the default is the caller's."""
    cpus = set(cpus)
    _threads[:] = [ThreadPoolExecutor(len(cpus), initializer=os.sched_setaffinity, initargs=(0, cpus))]


def draw(values: Any, method: str, generator: Callable[[], Any], *parameters: float) -> Any:
    """Draw the values in place by a method of tensors such as normal_. generator: makes a generator with
    its own seed. parameters: of the distribution.
    """
    if values.device.type != "cpu" or values.numel() <= PIECE:
        return getattr(values, method)(*parameters, generator=generator())
    pieces = values.view(-1).split(PIECE)
    generators = [generator() for _ in pieces]
    each = _threads[0].map if _threads else map
    for _ in each(lambda piece, own: getattr(piece, method)(*parameters, generator=own), pieces, generators):
        pass
    return values
