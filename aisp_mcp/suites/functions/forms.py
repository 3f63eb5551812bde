"""Pairs to begin with, by the form of the code. Each is long enough for the clock; NAME and TITLE are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FormName = Literal["torch", "numpy", "python", "cpp", "training"]


@dataclass(frozen=True)
class Form:
    """Texts by file name, in which NAME stands for the pair's. inputs: of two functions; empty for a suite's pair."""

    files: Mapping[str, str]
    inputs: str = ""


_TORCH = '''"""Distance of every point to its nearest neighbour: one point at a time."""

import torch

from aisp_mcp.bench import Benchmark


class TITLE(Benchmark):
    # Sizes are class attributes: --size points=512 changes one. `small` is used on a CPU, the attributes on a GPU.
    points, dimensions = 4096, 16
    sizes = {"small": {"points": 1500}}

    def inputs(self, rng):
        # New values for every call, from a secret seed: rng.randn, rand, randint, permutation, bernoulli.
        return {"x": rng.randn(self.points, self.dimensions)}

    def run(self, x):
        # The baseline, called with the inputs by name. It returns one tensor, or a tuple, list or dict of tensors.
        nearest = []
        for index, point in enumerate(x):
            distances = (x - point).square().sum(dim=1)
            distances[index] = torch.inf
            nearest.append(distances.min())
        return torch.stack(nearest)
'''
_TORCH_FAST = '''"""The same, all points at once."""

import torch

# A candidate sees the inputs only when it is called: it defines run(), and nothing about sizes, tolerance or timing.
# Further candidates are further files: optimized_NAME_VARIANT.py, or .cpp and .cu files (docs/native.md).


def run(x):
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.fill_diagonal_(torch.inf).min(dim=1).values.square()
'''
_ROWS = '''"""The norm of every row, by its definition."""

from aisp_mcp.bench import Benchmark


class TITLE(Benchmark):
    rows, cols = 65536, 1024
    sizes = {"small": {"rows": 16384, "cols": 512}}

    def inputs(self, rng):
        return {"a": rng.randn(self.rows, self.cols)}

    def run(self, a):
        return (a * a).sum(dim=1).sqrt()
'''
_ROWS_CPP = """/* One loop per row, with eight independent sums.

launch:
  function: NAME
  arguments: [a, out, "a.shape[0]", "a.shape[1]"]
  outputs: {out: {shape: ["a.shape[0]"], dtype: float32}}
*/

#include <cmath>
#include <cstdint>

extern "C" int NAME(const float* a, float* out, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
        float sums[8] = {};
        for (int64_t i = 0; i < cols; ++i) sums[i % 8] += a[row * cols + i] * a[row * cols + i];
        float total = 0;
        for (float sum : sums) total += sum;
        out[row] = std::sqrt(total);
    }
    return 0;
}
"""
_TRAINING = '''"""Steps of a small classifier, with AdamW one parameter at a time."""

import torch
from torch import nn

from aisp_mcp.bench.training import TrainingBenchmark


class TITLE(TrainingBenchmark):
    rows, width, classes, steps = 256, 512, 16, 4

    def model(self):
        return nn.Sequential(nn.Linear(self.width, self.width), nn.GELU(), nn.Linear(self.width, self.classes))

    def task(self, rng):
        return {"teacher": rng.randn(self.width, self.classes, scale=1.0, shift=0.0)}

    def batch(self, rng, teacher):
        x = rng.randn(self.rows, self.width)
        return {"x": x, "labels": (x @ teacher).argmax(dim=1)}

    def loss(self, model, x, labels):
        return nn.functional.cross_entropy(model(x), labels)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
'''
_TRAINING_FAST = '''"""The library's fused AdamW."""

import torch
from torch import nn

from aisp_mcp.bench.training import plain_step, train


def prepare(params, example):
    width, classes = example["weight.0.weight"].shape[1], example["weight.2.weight"].shape[0]
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, classes))
    return {"model": model.to(example["x"].device)}


def loss(model, x, labels):
    return nn.functional.cross_entropy(model(x), labels)


def fused(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


def run(model, **tensors):
    return train(model, fused, plain_step(loss), tensors)
'''
_NUMPY = '''"""A moving average: one window at a time."""

import numpy as np


def NAME(values):
    return np.array([values[begin : begin + 50].mean() for begin in range(len(values) - 49)])
'''
_NUMPY_FAST = '''"""The same, all windows at once."""

import numpy as np


def NAME(values):
    return np.lib.stride_tricks.sliding_window_view(values, 50).mean(axis=1)
'''
_PYTHON = '''"""Running totals: a loop."""


def NAME(items):
    totals, total = [], 0
    for item in items:
        total += item
        totals.append(total)
    return totals
'''
_PYTHON_FAST = '''"""The same by the standard library."""

from itertools import accumulate


def NAME(items):
    return list(accumulate(items))
'''
FORMS: Mapping[FormName, Form] = {
    "torch": Form({"baseline_NAME.py": _TORCH, "optimized_NAME.py": _TORCH_FAST}),
    "numpy": Form({"NAME.py": _NUMPY, "NAME_fast.py": _NUMPY_FAST}, "values=randn(30000)"),
    "python": Form({"NAME.py": _PYTHON, "NAME_fast.py": _PYTHON_FAST}, "items=list(randint(0, 100, 200000))"),
    "cpp": Form({"baseline_NAME.py": _ROWS, "optimized_NAME.cpp": _ROWS_CPP}),
    "training": Form({"baseline_NAME.py": _TRAINING, "optimized_NAME.py": _TRAINING_FAST}),
}
