"""Element by element through tensors that are too large for intermediate results of their size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PIECE = 1 << 26  # elements processed together, because each takes a dozen numbers


def pieces(*tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Views of the same elements of tensors of one shape; of small or strided ones, the tensors themselves."""
    if tensors[0].numel() <= PIECE or not all(tensor.is_contiguous() for tensor in tensors):
        yield tensors
        return
    yield from zip(*(tensor.view(-1).split(PIECE) for tensor in tensors), strict=True)
