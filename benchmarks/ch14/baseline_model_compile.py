"""Two transformer blocks run eagerly: every norm, residual and activation is a kernel of its own."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Needs, Work


class ModelCompile(Benchmark):
    batch, tokens, width, heads, layers, dtype = 32, 1024, 256, 4, 2, "bfloat16"
    sizes = {
        "small": {"batch": 1, "tokens": 32, "width": 64, "heads": 2, "dtype": "float32"},
        "large": {"batch": 64, "layers": 4},
    }
    needs = Needs(gpus=1)  # on a CPU each process would compile C++ for half a minute

    def params(self, rng):
        shapes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        return {
            name: rng.randn(self.layers, rows * self.width, columns * self.width, dtype=self.dtype)
            / math.sqrt(rows * self.width)
            for name, (rows, columns) in shapes.items()
        }

    def inputs(self, rng):
        return {"x": rng.randn(self.batch, self.tokens, self.heads, self.width // self.heads, dtype=self.dtype)}

    def work(self):
        rows = self.batch * self.tokens
        products = 12 * rows * self.width**2 + rows * (self.tokens + 1) * self.width
        elements = 12 * self.layers * self.width**2 + 2 * rows * self.width
        return Work(flops=2 * self.layers * products, bytes=elements * getattr(torch, self.dtype).itemsize, items=rows)

    def run(self, x, qkv, out, up, down):
        batch, tokens, heads, head_width = x.shape
        width = heads * head_width
        state = x.flatten(2)
        for layer in range(qkv.shape[0]):
            projected = functional.layer_norm(state, (width,)) @ qkv[layer]
            q, k, v = projected.view(batch, tokens, 3, heads, head_width).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            state = state + mixed.transpose(1, 2).reshape(batch, tokens, width) @ out[layer]
            hidden = functional.gelu(functional.layer_norm(state, (width,)) @ up[layer])
            state = state + hidden @ down[layer]
        return state
