"""Decode steps that grow the key and value caches by concatenation: every step copies all that came before."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class KvCache(Benchmark):
    heads, prompt, steps, width, dtype = 32, 4096, 16, 128, "bfloat16"
    sizes = {
        "small": {"heads": 8, "prompt": 768, "steps": 8, "width": 64, "dtype": "float32"},
        "large": {"prompt": 16384, "steps": 32},
    }

    def inputs(self, rng):
        past, new = (self.heads, self.prompt, self.width), (self.heads, self.steps, self.width)
        shapes = {"k_prompt": past, "v_prompt": past, "q": new, "k": new, "v": new}
        return {name: rng.randn(*shape, dtype=self.dtype) for name, shape in shapes.items()}

    def work(self):
        seen = self.steps * self.prompt + self.steps * (self.steps + 1) // 2
        read = 2 * seen + 2 * self.steps  # keys and values of every step, its query and its output
        return Work(
            flops=4 * self.heads * seen * self.width,
            bytes=self.heads * self.width * read * getattr(torch, self.dtype).itemsize,
            items=self.steps,
        )

    def run(self, k_prompt, v_prompt, q, k, v):
        """All steps of one sequence; the outputs of the steps, side by side."""
        keys, values, outputs = k_prompt, v_prompt, []
        for step in range(q.shape[1]):
            now = slice(step, step + 1)
            keys = torch.cat([keys, k[:, now]], dim=1)
            values = torch.cat([values, v[:, now]], dim=1)
            scores = q[:, now] @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
            outputs.append(scores.softmax(dim=-1) @ values)
        return torch.cat(outputs, dim=1)
