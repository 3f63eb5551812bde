"""Find the inputs that must keep the statistics of the problem's recipe.

The harness draws inputs with secret scales, and some of unusual kinds. On those, a recurrence or a product of
exponentials that stays small on its own inputs may grow without bound. Then nothing can be compared, and a correct
kernel would be judged incorrect. Such inputs are drawn by the problem's own recipe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aisp_mcp.judge.candidate.adapted import Reference
from aisp_mcp.judge.loading import CallRng, flatten
from aisp_mcp.suites.adapters import writing
from aisp_mcp.suites.adapters.base import TensorFacts

MODES = ("plain", "exact", *["plain"] * 3, "constant", *["plain"] * 3, "spikes", *["plain"] * 4)  # most calls are plain
# Largest growth of the largest output. A product of three inputs grows by 1e6 on spikes, by a hundred on plain ones.
MOST, MOST_PLAIN = 1e9, 1e6
SECONDS, LEAST = 8.0, 5  # no further draws after that time, beyond the first ones


def unbounded_inputs(
    reference: Reference, facts: Sequence[TensorFacts], static: Mapping[str, Any], usual: Mapping[str, Any], device: str
) -> frozenset[str]:
    """Names of the inputs that must be left to the recipe. usual: outputs on the recipe's inputs, by name."""
    import torch

    drawn = [fact for fact in facts if fact.role == "input" and fact.how not in ("recipe", "fixed")]
    sizes = {name: _largest(tensor) for name, tensor in usual.items() if tensor.is_floating_point()}

    def growth(some: Sequence[TensorFacts], number: int, mode: str) -> float:
        rng = CallRng(device, number, mode)
        own = reference.recipe(rng)
        # All are drawn, whichever are used: the same draws in each trial of this number.
        others = {fact.name: (fact, eval(writing.expression(fact), {"rng": rng})) for fact in drawn}
        inputs = own | {name: value for name, (fact, value) in others.items() if fact in some}
        outputs = dict(flatten(reference.run(**inputs, **static)))
        return max(_growth(outputs[name], usual[name], size, mode == "plain") for name, size in sizes.items())

    rest, end = drawn, time.monotonic() + SECONDS
    with suppress(torch.OutOfMemoryError):  # a large problem is tried as far as memory allows
        for number, mode in enumerate(MODES if drawn and sizes else ()):
            if number >= LEAST and time.monotonic() > end:
                break
            grown, most = growth(rest, number, mode), MOST_PLAIN if mode == "plain" else MOST
            while rest and grown > most:  # without the input that matters most
                others = [[fact for fact in rest if fact is not one] for one in rest]
                grown, at = min((growth(some, number, mode), at) for at, some in enumerate(others))
                rest = others[at]
    return frozenset(fact.name for fact in drawn) - {fact.name for fact in rest}


def _largest(tensor: Any) -> float:
    """The largest finite magnitude."""
    wide = tensor.float() if tensor.itemsize == 1 else tensor
    return float(wide.abs().where(wide.isfinite(), 0.0).max()) if tensor.numel() else 0.0


def _growth(output: Any, usual: Any, size: float, is_plain: bool) -> float:
    """The largest element of an output in units of the usual one; infinite for an output that, on plain inputs, is not
    finite although the recipe's is.
    """
    wide, own = (tensor.float() if tensor.itemsize == 1 else tensor for tensor in (output, usual))
    if is_plain and bool(own.isfinite().all()) and not bool(wide.isfinite().all()):
        return math.inf
    return _largest(output) / size if size > 0 else 0.0
