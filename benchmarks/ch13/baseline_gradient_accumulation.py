"""Gradients added up over micro-batches, as code written for a smaller device does it after moving to a larger one."""

from _common import Training

from aisp_mcp.bench import Work


class GradientAccumulation(Training):
    width, layers, classes, rows, steps, micro = 512, 4, 256, 2048, 2, 16
    sizes = {
        "small": {"width": 64, "factor": 2, "layers": 4, "classes": 16, "rows": 64, "steps": 3, "micro": 16},
        "large": {"width": 1024, "layers": 8, "rows": 16384, "micro": 64},
    }

    def work(self):
        flops = 6 * self.rows * self.weights()
        return Work(self.steps * flops, self.steps * 28 * self.weights(), self.steps * self.rows, "samples")

    def step(self, model, optimizer, batch):
        optimizer.zero_grad(set_to_none=True)
        total = 0
        for x, labels in zip(batch["x"].chunk(self.micro), batch["labels"].chunk(self.micro), strict=True):
            loss = self.loss(model, x, labels) / self.micro
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total
