"""A Triton kernel at one element per thread, as CUDA kernels begin: 128 per program, loads of two bytes each."""

import torch
import triton
import triton.language as tl

from aisp_mcp.bench import Benchmark, Needs, Work


@triton.jit
def gated(x, gate, out, count, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(gate + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, value * tl.sigmoid(other), mask=inside)


class TileSweep(Benchmark):
    elements, dtype = 1 << 26, "bfloat16"
    sizes = {"small": {"elements": 500, "dtype": "float32"}, "large": {"elements": 1 << 29}}
    needs = Needs(gpus=1, packages=("triton",))

    def inputs(self, rng):
        return {name: rng.randn(self.elements, dtype=self.dtype) for name in ("x", "gate")}

    def work(self):
        itemsize = getattr(torch, self.dtype).itemsize
        return Work(flops=4 * self.elements, bytes=3 * self.elements * itemsize, items=self.elements)

    def run(self, x, gate):
        out = torch.empty_like(x)
        gated[(triton.cdiv(len(x), 128),)](x, gate, out, len(x), block=128, num_warps=4)
        return out

    def reference(self, x, gate):
        return x * torch.sigmoid(gate)
