"""The model that this chapter trains, shared by baselines and candidates: a residual network that learns a teacher."""

import torch
from torch import nn
from torch.nn import functional

from aisp_mcp.bench.training import TrainingBenchmark

BETAS = (1 - 2**-3, 1 - 2**-10)  # in float32 exact, and one minus them too


class Block(nn.Module):
    """A normalised layer with a shortcut."""

    def __init__(self, width, factor):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Network(nn.Module):
    """Blocks and a head."""

    def __init__(self, width, factor, layers, classes):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, factor) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def network_of(tensors):
    """A network of the shapes that inputs have, on their device."""
    layers = sum(name.startswith("weight.") and name.endswith("up.weight") for name in tensors)
    hidden, width = tensors["weight.blocks.0.up.weight"].shape
    head = tensors["weight.head.weight"]
    return Network(width, hidden // width, layers, len(head)).to(head.device)


def loss_of(model, x, labels):
    return functional.cross_entropy(model(x), labels)


class Training(TrainingBenchmark):
    """Steps on samples that a teacher, another one for each call, has labelled."""

    width, factor, layers, classes, rows, steps, rate = 1024, 4, 8, 1000, 4096, 4, 1e-3

    def model(self):
        return Network(self.width, self.factor, self.layers, self.classes)

    def task(self, rng):
        return {"teacher": rng.randn(self.width, self.classes, scale=1.0, shift=0.0)}

    def batch(self, rng, teacher):
        x = rng.randn(self.rows, self.width)
        return {"x": x, "labels": (x @ teacher).argmax(dim=1)}

    def loss(self, model, x, labels):
        return loss_of(model, x, labels)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=self.rate)

    def weights(self):
        """Number of parameters in matrices."""
        return self.layers * 2 * self.factor * self.width**2 + self.width * self.classes
