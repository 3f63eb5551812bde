"""Kernels that no library offers: pure reads, a chain of dependent loads, an integer matrix product.

For GPU children only. The library's integer product reaches only half the rate of Hopper's tensor cores.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 8192


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _read(a, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    pid = tl.program_id(0).to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + pid, tl.sum(tl.load(a + at, mask=at < n, other=0.0)))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _sweep(a, out, blocks, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    pid = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(steps):
        block = ((pid + step * tl.num_programs(0)) % blocks).to(tl.int64)
        # .cg: only through L2, because the combined first-level caches are as large as the requested sets
        total += tl.load(a + block * BLOCK + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(out + pid, tl.sum(total))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _chase(links, out, steps):  # type: ignore[no-untyped-def]
    at = tl.load(out)
    for _ in range(steps):
        at = tl.load(links + at)
    tl.store(out, at)


def read_all(a: Any) -> Any:
    """Read every element once: one partial sum per block of 32 KiB."""
    blocks = triton.cdiv(a.numel(), _BLOCK)
    out = torch.empty(blocks, device=a.device)
    _read[(blocks,)](a, out, a.numel(), BLOCK=_BLOCK, num_warps=8)
    return out


def sweep(a: Any, out: Any, steps: int) -> int:
    """Read the whole blocks of 32 KiB of `a` repeatedly in one launch; returns the bytes read.

    out: one float per program (about four per multiprocessor); each reads `steps` blocks, a different one every time.
    """
    programs, blocks = out.numel(), a.numel() // _BLOCK
    _sweep[(programs,)](a, out, blocks, steps, BLOCK=_BLOCK, num_warps=8)
    read: int = programs * steps * _BLOCK * 4
    return read


def chase(links: Any, out: Any, steps: int) -> None:
    """Follow `links` (int32 indices, one cycle) from out[0] for `steps` dependent loads by one warp.

    The last position goes to out[0]: the next call continues there, not on lines that are cached by now.
    """
    _chase[(1,)](links, out, steps, num_warps=1)


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
