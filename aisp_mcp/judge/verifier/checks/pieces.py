"""Element by element through tensors that are too large for intermediate results of their size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Elements processed together, on a GPU and on a CPU. On a GPU, each takes a dozen numbers, so a piece takes 6 GiB
# (docs/decisions/0082-take-turns-with-gpu-memory.md). On a CPU, results of 2 MiB stay in its cache, and their memory in
# the allocator, which must ask the kernel for larger ones (chosen).
PIECE, CPU_PIECE = 1 << 26, 1 << 18


def pieces(*tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Views of the same elements of tensors of one shape; of small or strided ones, the tensors themselves."""
    size = CPU_PIECE if tensors[0].device.type == "cpu" else PIECE
    if tensors[0].numel() <= size or not all(tensor.is_contiguous() for tensor in tensors):
        yield tensors
        return
    yield from zip(*(tensor.view(-1).split(size) for tensor in tensors), strict=True)
