"""The kernels that no library offers: pure reads, and a chain of dependent loads. For GPU children only."""

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
