"""Outputs that hold positions, such as those of topk, sort and argmax: compared by the values that they point to."""

from __future__ import annotations

from typing import Any


class WrongPositionError(Exception):
    """A position is out of range, or occurs twice where each may occur once."""


def values_at(positions: Any, source: Any, dim: int | None) -> Any:
    """The elements of the source, of one slice along dim for each slice of positions. Raises WrongPositionError.

    positions: as torch.topk, sort or argmax return them, with or without dim. dim None: source is taken as flat.
    """
    if dim is None:
        source, positions, dim = source.flatten(), positions.flatten(), 0
    if positions.ndim == source.ndim - 1:
        positions = positions.unsqueeze(dim)
    positions = positions.long()
    if not positions.numel():
        return source.new_empty(0)
    if bool((positions < 0).any()) or bool((positions >= source.shape[dim]).any()):
        raise WrongPositionError("a position is outside the input")
    ordered = positions.sort(dim).values
    if bool((ordered.diff(dim=dim) == 0).any()):
        raise WrongPositionError("a position occurs twice")
    return source.gather(dim, positions)
