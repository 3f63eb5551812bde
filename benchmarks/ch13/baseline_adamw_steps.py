"""AdamW one parameter at a time: a dozen small operations for each, as optimisers written by hand do it."""

import torch
from _common import Training

from aisp_mcp.bench import Work


class AdamwSteps(Training):
    width, layers, rows = 256, 48, 256
    sizes = {
        "small": {"width": 32, "factor": 2, "layers": 8, "classes": 16, "rows": 16, "steps": 3},
        "large": {"layers": 96},
    }

    def work(self):
        flops = 6 * self.rows * self.weights() + 12 * self.weights()
        return Work(self.steps * flops, self.steps * 28 * self.weights(), self.steps * self.rows, "samples")

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=self.rate, foreach=False)
