"""AdamW one parameter at a time: a dozen small operations for each, as optimisers written by hand do it.

The decays of both moments are 1 - 1/8 and 1 - 1/1024, for which 1 - beta is exact in float32. Fused kernels compute
that difference in float32: of 0.999 it is off by 1.3e-5, two hundred roundings, in the share that a new gradient has.
"""

import torch
from _common import BETAS, Training

from aisp_mcp.bench import Work


class AdamwSteps(Training):
    width, layers, rows, classes, steps = 256, 8, 256, 256, 2
    sizes = {
        "small": {"width": 32, "factor": 2, "layers": 8, "classes": 16, "rows": 16, "steps": 3},
        "large": {"layers": 48},
    }

    def work(self):
        flops = 6 * self.rows * self.weights() + 12 * self.weights()
        return Work(self.steps * flops, self.steps * 28 * self.weights(), self.steps * self.rows, "samples")

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=self.rate, betas=BETAS, foreach=False)
