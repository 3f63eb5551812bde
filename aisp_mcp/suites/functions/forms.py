"""Pairs to begin with, by the form of the code. Each is long enough for the clock; NAME and TITLE are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FormName = Literal["torch", "numpy", "python", "text", "cpp", "cuda", "training", "serving"]


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
# Letters come as their codes, because inputs are drawn as numbers.
_TEXT = '''"""How often each letter occurs in a text: letter by letter."""


def NAME(codes):
    text = bytes(codes).decode()
    counts = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 0)
    for letter in text:
        counts[letter] += 1
    return list(counts.values())
'''
_TEXT_FAST = '''"""The same by one search per letter."""


def NAME(codes):
    text = bytes(codes).decode()
    return [text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
'''
_ROWS_CUDA = """/* One warp for each row: its threads read neighbouring elements, and add their sums by shuffles.

launch:
  function: NAME
  arguments: [a, out, "a.shape[0]", "a.shape[1]", stream]
  outputs: {out: {shape: ["a.shape[0]"], dtype: float32}}
*/

#include <cstdint>

__global__ void row_norms(const float* __restrict__ a, float* __restrict__ out, int64_t rows, int64_t cols) {
    const int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0;
    for (int64_t i = threadIdx.x % 32; i < cols; i += 32) {
        const float value = a[row * cols + i];
        sum += value * value;
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) out[row] = sqrtf(sum);
}

extern "C" int NAME(const float* a, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
    const int threads = 256, warps = threads / 32;
    row_norms<<<(unsigned)((rows + warps - 1) / warps), threads, 0, stream>>>(a, out, rows, cols);
    return cudaGetLastError();
}
"""
_SERVING = '''"""A small decoder that serves requests in static batches: the next wait for the longest of a batch."""

from itertools import accumulate

from aisp_mcp.bench import Arrival, Slo
from aisp_mcp.bench.decoder import DecoderBenchmark, SlotCache, serve_in_batches

SLOTS = 8


class TITLE(DecoderBenchmark):
    goal = "throughput"  # of requests that meet the limits; "latency" judges a percentile
    slo = Slo(ttft=40.0)  # in multiples of the time of one request alone
    layers, width, max_requests, max_prompt, max_tokens = 4, 2048, 32, 512, 64
    sizes = {"small": {"layers": 2, "width": 128, "max_requests": 24, "max_prompt": 32, "max_tokens": 64}}

    def trace(self, rng):
        # The secret input: arrivals in units of one request\'s time, prompts, and tokens to produce.
        gaps = rng.randint(0, 101, self.max_requests).tolist()
        lengths = rng.randint(self.max_prompt // 4, self.max_prompt + 1, self.max_requests).tolist()
        wanted = [self.max_tokens // (8 if few else 1) for few in rng.randint(0, 4, self.max_requests).tolist()]
        prompts = [rng.randint(0, self.vocabulary, length).tolist() for length in lengths]
        return [Arrival(at / 1000, *one) for at, *one in zip(accumulate(gaps), prompts, wanted, strict=True)]

    def serve(self, requests, emit, **weights):
        serve_in_batches(requests, emit, SlotCache(weights, SLOTS, self.max_prompt + self.max_tokens))
'''
_SERVING_FAST = '''"""A request starts as soon as a slot is free."""

from aisp_mcp.bench.decoder import SlotCache, serve_continuously

# Its own engine defines serve(requests, emit, **weights): see docs/serving.md.


def serve(requests, emit, **weights):
    serve_continuously(requests, emit, SlotCache(weights, 8, 640))
'''
FORMS: Mapping[FormName, Form] = {
    "torch": Form({"baseline_NAME.py": _TORCH, "optimized_NAME.py": _TORCH_FAST}),
    "numpy": Form({"NAME.py": _NUMPY, "NAME_fast.py": _NUMPY_FAST}, "values=randn(30000)"),
    "python": Form({"NAME.py": _PYTHON, "NAME_fast.py": _PYTHON_FAST}, "items=list(randint(0, 100, 200000))"),
    "text": Form({"NAME.py": _TEXT, "NAME_fast.py": _TEXT_FAST}, "codes=list(randint(97, 123, 300000))"),
    "cpp": Form({"baseline_NAME.py": _ROWS, "optimized_NAME.cpp": _ROWS_CPP}),
    "cuda": Form({"baseline_NAME.py": _ROWS, "optimized_NAME.cu": _ROWS_CUDA}),
    "serving": Form({"baseline_NAME.py": _SERVING, "optimized_NAME.py": _SERVING_FAST}),
    "training": Form({"baseline_NAME.py": _TRAINING, "optimized_NAME.py": _TRAINING_FAST}),
}
