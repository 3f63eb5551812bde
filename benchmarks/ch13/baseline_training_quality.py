"""Training in float32 throughout; the contract asks for the same quality after some steps, not for the same bits."""

from _common import Training

from aisp_mcp.bench import Work
from aisp_mcp.bench.training import Quality


class TrainingQuality(Training):
    layers, rows, steps = 4, 1024, 6
    quality = Quality(update=0.05)
    sizes = {
        "small": {"width": 128, "factor": 2, "layers": 3, "classes": 32, "rows": 96, "steps": 5},
        "large": {"width": 4096, "rows": 4096},
    }

    def work(self):
        """Bytes with two for each weight and gradient: the least that this quality needs."""
        flops = 6 * self.rows * self.weights()
        return Work(self.steps * flops, self.steps * 20 * self.weights(), self.steps * self.rows, "samples")
