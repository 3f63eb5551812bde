"""Inputs of a call that differ from those of the call before it in a few elements of one input.

A candidate that keeps its results by the corners, a sum, the first bytes or a sample of its inputs gives the answer to
the call before; so does one that keeps what it made of one input, such as a packed matrix, and looks at another.
Fresh inputs never show this, since no part of them occurs twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

LEAST = 8  # elements of an input that has an interior
RUN = 8  # a run is this part of an input
# A seed with a number above these bits stands for the inputs of the seed without it, changed in the way of that number.
BITS = 56
Change = Callable[[Any, random.Random], Any]  # of some elements, as a vector


def seed_of(seed: int, number: int) -> int:
    """The seed of inputs that differ from the plain ones of a seed. number: from 0 on; it rotates through the inputs,
    and then through the ways to change them.
    """
    return seed | (number + 1) << BITS


def parts_of(seed: int) -> tuple[int, int | None]:
    """The seed of the plain inputs, and the number if these are changed."""
    number = seed >> BITS
    return seed & (1 << BITS) - 1, number - 1 if number else None


def changed(values: Any, way: int, draw: random.Random, change: Change | None) -> Any:
    """The values, in which now one element of the interior has another value, two are exchanged, or a run has other
    values. change: gives elements other values; None: they may only be exchanged, as in a permutation.
    """
    flat = values.view(-1)
    first, other = _inside(values.shape, draw), _inside(values.shape, draw)
    if change is None or way % 3 == 1:
        flat[[first, other]] = flat[[other, first]]
    else:
        end = first + (1 if way % 3 == 0 else max(flat.numel() // RUN, 1))
        flat[first:end] = change(flat[first:end], draw)
    return values


def _inside(shape: tuple[int, ...], draw: random.Random) -> int:
    """A position in the middle half of each dimension, in the flat values."""
    at = 0
    for size in shape:
        at = at * size + draw.randrange(size // 4, max(size - size // 4, size // 4 + 1))
    return at


def other_floats(values: Any, draw: random.Random) -> Any:
    """Values of the same sign and at most the same size, so that they stay in any range that the old ones are in."""
    return values * draw.uniform(0.3, 0.7)


def other_integers(low: int, high: int) -> Change:
    """Change integers in [low, high) to others there."""

    def change(values: Any, draw: random.Random) -> Any:
        by = draw.randrange(1, max(high - low, 2))
        return ((values.long() - low + by) % (high - low) + low).to(values.dtype)

    return change


def other_booleans(values: Any, _: random.Random) -> Any:
    return ~values
