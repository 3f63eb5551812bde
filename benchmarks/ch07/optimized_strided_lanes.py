"""Each program takes neighbouring elements, and so do its lanes: a warp's load is four whole lines."""

import torch
import triton
import triton.language as tl


@triton.jit
def double(source, target, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, tl.load(source + places) * 2)


def run(x):
    out = torch.empty_like(x)
    double[(x.numel() // 4096,)](x, out, BLOCK=4096)
    return out
