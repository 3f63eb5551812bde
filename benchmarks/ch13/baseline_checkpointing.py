"""Every activation kept for the backward pass; peak memory is what counts here."""

from _common import Training

from aisp_mcp.bench import Work


class Checkpointing(Training):
    goal = "memory"
    width, layers, classes, steps = 512, 16, 256, 2
    sizes = {
        "small": {"width": 64, "factor": 4, "layers": 8, "classes": 16, "rows": 1024, "steps": 1},
        "large": {"width": 1024, "rows": 16384},
    }

    def work(self):
        flops = 6 * self.rows * self.weights()
        return Work(self.steps * flops, self.steps * 28 * self.weights(), self.steps * self.rows, "samples")
