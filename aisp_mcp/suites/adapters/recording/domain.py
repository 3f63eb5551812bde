"""Inputs that a problem cannot be given with other statistics than its recipe's.

The harness draws inputs with secret scales, and some of unusual kinds. A recurrence or a product of exponentials that
is tame on its own inputs may grow without bound on those: nothing can be compared there, and a kernel that is right on
all inputs that the problem can have would be accused. Such inputs stay with the problem's own recipe.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aisp_mcp.judge.loading import CallRng, flatten
from aisp_mcp.suites.adapters import writing
from aisp_mcp.suites.adapters.base import TensorFacts
from aisp_mcp.suites.adapters.runtime import Reference

MODES = ("plain", "exact", *["plain"] * 3, "constant", *["plain"] * 3, "spikes", *["plain"] * 4)  # most calls are plain
GROWTH = 1e9  # of the largest output; a product of three inputs grows by 1e6 on spikes
SECONDS, LEAST = 3.0, 2  # no further draws after that time, beyond the first ones


def unbounded_inputs(
    reference: Reference, facts: Sequence[TensorFacts], static: Mapping[str, Any], usual: Mapping[str, Any], device: str
) -> frozenset[str]:
    """Names of the inputs that must be left to the recipe. usual: outputs on the recipe's inputs, by name."""
    import torch

    drawn = [fact for fact in facts if fact.role == "input" and fact.how not in ("recipe", "fixed")]
    sizes = {name: _largest(tensor) for name, tensor in usual.items() if tensor.is_floating_point()}

    def fails(some: Sequence[TensorFacts], number: int, mode: str) -> bool:
        rng = CallRng(device, number, mode)
        inputs = reference.recipe(rng)
        inputs |= {fact.name: eval(writing.expression(fact), {"rng": rng}) for fact in some}
        outputs = dict(flatten(reference.run(**inputs, **static)))
        return any(_is_unbounded(outputs[name], usual[name], size, mode == "plain") for name, size in sizes.items())

    rest, end = drawn, time.monotonic() + SECONDS
    with suppress(torch.OutOfMemoryError):  # a large problem is tried as far as memory allows
        for number, mode in enumerate(MODES if drawn and sizes else ()):
            if number >= LEAST and time.monotonic() > end:
                break
            while rest and fails(rest, number, mode):
                others = [[fact for fact in rest if fact is not one] for one in rest]
                rest = next((some for some in others if not fails(some, number, mode)), others[0])
    return frozenset(fact.name for fact in drawn) - {fact.name for fact in rest}


def _largest(tensor: Any) -> float:
    """The largest finite magnitude."""
    wide = tensor.float() if tensor.itemsize == 1 else tensor
    return float(wide.abs().where(wide.isfinite(), 0.0).max()) if tensor.numel() else 0.0


def _is_unbounded(output: Any, usual: Any, size: float, is_plain: bool) -> bool:
    """Return True for an output that is far too large, or, on plain inputs, not finite although the recipe's is."""
    wide, own = (tensor.float() if tensor.itemsize == 1 else tensor for tensor in (output, usual))
    if is_plain and bool(own.isfinite().all()) and not bool(wide.isfinite().all()):
        return True
    return size > 0 and _largest(output) > GROWTH * size
