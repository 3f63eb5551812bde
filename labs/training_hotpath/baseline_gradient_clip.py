"""Gradients clipped by their common norm, parameter by parameter, with `.item()` to add up the squares."""

import math

import torch

from aisp_mcp.bench import Benchmark, Tolerance, Work


class GradientClip(Benchmark):
    tensors, width = 256, 512
    sizes = {"small": {"tensors": 100, "width": 48}, "large": {"tensors": 512, "width": 2048}}

    # One float32 sum over all squares errs more than a hundred small ones joined in float64: 28 times as much here,
    # and ten times that where few gradients are large.
    tolerance = Tolerance(error_ratio=1024)

    def inputs(self, rng):
        return {"gradients": rng.randn(self.tensors, self.width, self.width)}

    def work(self):
        elements = self.tensors * self.width**2
        return Work(flops=3 * elements, bytes=8 * elements, items=self.tensors)

    def run(self, gradients):
        """All gradients, scaled so that their common norm is at most one."""
        square = 0.0
        for gradient in gradients:
            square += gradient.norm().item() ** 2
        scale = min(1.0, 1.0 / (math.sqrt(square) + 1e-6))
        return torch.stack([gradient * scale for gradient in gradients])
