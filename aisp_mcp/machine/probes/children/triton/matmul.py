"""An integer matrix product: the library's reaches only half the rate of Hopper's tensor cores. GPU only."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

TILE = 256  # edges must be multiples of this: the kernel has no masks


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _matmul(a, b, out, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    # Programs that run at the same time share tiles of a and b: eight rows of tiles before the next column.
    pid, across = tl.program_id(0), n // COLUMNS
    group = pid // (8 * across)
    high = min(n // ROWS - group * 8, 8)
    inside = pid % (8 * across)
    row, column = group * 8 + inside % high, inside // high
    depth = tl.arange(0, DEPTH)
    rows, columns = row * ROWS + tl.arange(0, ROWS), column * COLUMNS + tl.arange(0, COLUMNS)
    left, right = a + rows[:, None] * n + depth[None, :], b + columns[None, :] * n + depth[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.int32)
    for _ in range(0, n, DEPTH):
        total = tl.dot(tl.load(left), tl.load(right), total, out_dtype=tl.int32)
        left += DEPTH
        right += DEPTH
    tl.store(out + rows[:, None] * n + columns[None, :], total)


def matmul(a: Any, b: Any, out: Any, stages: int = 4) -> None:
    """out = a @ b.t() for n x n int8 matrices by rows, n a multiple of TILE; out is int32.

    stages: number of tiles of depth in flight.
    """
    n = a.shape[0]
    tiles = (n // 128) * (n // TILE)
    _matmul[(tiles,)](a, b, out, n, ROWS=128, COLUMNS=TILE, DEPTH=128, num_warps=8, num_stages=stages)
