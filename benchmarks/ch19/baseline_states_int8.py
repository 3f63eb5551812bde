"""AdamW with both moments in float32, eight bytes for each weight; peak memory counts, and quality is the contract."""

import torch
from torch import nn
from torch.nn import functional

from aisp_mcp.bench import Work
from aisp_mcp.bench.training import Quality, TrainingBenchmark


class StatesInt8(TrainingBenchmark):
    goal = "memory"
    width, layers, rows, steps = 2048, 4, 64, 4
    quality = Quality(update=0.05)
    sizes = {"small": {"width": 512, "layers": 2, "rows": 32}, "large": {"width": 8192}}

    def model(self):
        layers = [nn.Sequential(nn.Linear(self.width, self.width), nn.Tanh()) for _ in range(self.layers)]
        return nn.Sequential(*layers)

    def task(self, rng):
        return {"teacher": rng.randn(self.width, self.width, scale=1.0, shift=0.0)}

    def batch(self, rng, teacher):
        # Even rows: where few columns carry all gradients, no 8-bit format with one scale per block keeps the others.
        x = rng.randn(self.rows, self.width, scale=(0.75, 1.4))
        return {"x": x, "labels": (x @ teacher).argmax(dim=1)}

    def loss(self, model, x, labels):
        return functional.cross_entropy(model(x), labels)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)

    def work(self):
        """Bytes with one for each moment: the least that this quality needs."""
        weights = self.layers * self.width**2
        flops, moved = 6 * self.rows * weights + 12 * weights, 16 * weights
        return Work(self.steps * flops, self.steps * moved, self.steps * self.rows, "samples")
