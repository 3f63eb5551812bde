"""Adam written as a loop over parameters: a dozen small operations for each of them."""

import torch

from aisp_mcp.bench import Benchmark, Tolerance, Work

STEP, RATE, DECAY, DECAY_SQUARE, EPSILON = 10, 1e-3, 0.9, 0.999, 1e-8


class OptimizerForeach(Benchmark):
    tensors, width = 200, 512
    sizes = {"small": {"tensors": 60, "width": 32}, "large": {"width": 2048}}
    # The library's fused kernel multiplies in another order: up to 40 times the error of these steps on an H100.
    tolerance = Tolerance(error_ratio=96)

    def inputs(self, rng):
        shape = (self.tensors, self.width, self.width)
        made = {name: rng.randn(*shape) for name in ("weight", "grad", "first")}
        # Means that are large compared with their squares, as those of gradients never are, make steps that magnify
        # rounding.
        return {**made, "second": rng.randn(*shape).square_().addcmul_(made["first"], made["first"])}

    def work(self):
        elements = self.tensors * self.width**2
        return Work(flops=12 * elements, bytes=4 * 7 * elements, items=elements)

    def run(self, weight, grad, first, second):
        """Step number ten of Adam. Weights, and both moments, of all parameters."""
        weights, firsts, seconds = [], [], []
        for tensors in zip(weight, grad, first, second, strict=True):
            for kept, new in zip((weights, firsts, seconds), self.adam(*tensors), strict=True):
                kept.append(new)
        return {"weight": torch.stack(weights), "first": torch.stack(firsts), "second": torch.stack(seconds)}

    @staticmethod
    def adam(weight, grad, first, second):
        first = first * DECAY + grad * (1 - DECAY)
        second = second * DECAY_SQUARE + grad * grad * (1 - DECAY_SQUARE)
        scale = (second / (1 - DECAY_SQUARE**STEP)).sqrt() + EPSILON
        return weight - RATE / (1 - DECAY**STEP) * first / scale, first, second
