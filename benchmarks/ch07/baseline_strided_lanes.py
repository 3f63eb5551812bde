"""A Triton kernel whose programs take every n-th element, as threads of a CPU may: each lane fetches a sector."""

import torch
import triton
import triton.language as tl

from aisp_mcp.bench import Benchmark, Needs, Work


@triton.jit
def double(source, target, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)
    tl.store(target + places, tl.load(source + places) * 2)


class StridedLanes(Benchmark):
    elements = 1 << 26
    sizes = {"small": {"elements": 1 << 14}, "large": {"elements": 1 << 29}}
    needs = Needs(gpus=1, packages=("triton",))

    def inputs(self, rng):
        return {"x": rng.randn(self.elements)}

    def work(self):
        return Work(flops=self.elements, bytes=8 * self.elements, items=self.elements)

    def run(self, x):
        out = torch.empty_like(x)
        double[(x.numel() // 4096,)](x, out, BLOCK=4096)
        return out

    def reference(self, x):
        return x * 2
