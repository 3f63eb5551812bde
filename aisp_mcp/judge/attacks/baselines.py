"""Tiny benchmarks that the cases share: specifications as source text, some hundred microseconds a call."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

_HEAD = '''"""{summary}"""

import torch
import torch.nn.functional as F

from aisp_mcp.bench import Benchmark, Tolerance


class Small(Benchmark):
'''


def spec(summary: str) -> Callable[[str], str]:
    """The source of a specification with this docstring, of the body of its class."""
    return lambda body: _HEAD.format(summary=summary) + textwrap.indent(body.strip("\n"), "    ") + "\n"


MATMUL_RELU = spec("Multiply by a static matrix and clip.")("""
def params(self, rng):
    return {"w": rng.randn(256, 256)}

def inputs(self, rng):
    return {"x": rng.randn(256, 256)}

def run(self, x, w):
    return torch.relu(x @ w)
""")

# Hundreds of operations on few numbers: what counts is their number, so many calls at once cost as much as one.
RECURRENCE = spec("A hundred steps of a small recurrence.")("""
def inputs(self, rng):
    return {"x": rng.randn(64), "b": rng.randn(64)}

def run(self, x, b):
    for _ in range(100):
        x = torch.tanh(x * 0.9 + b)
    return x
""")

SHORT_RECURRENCE = RECURRENCE.replace("A hundred steps", "Four steps").replace("range(100)", "range(4)")

# So long that a neighbour on the same core takes its share of every single call.
MATMUL_LONG = spec("A product that takes many milliseconds.")("""
def inputs(self, rng):
    return {"x": rng.randn(768, 768), "w": rng.randn(768, 768)}

def run(self, x, w):
    return torch.relu(x @ w)
""")

MATMUL_DOUBLE = spec("Multiply two matrices in double precision.")("""
def inputs(self, rng):
    return {"x": rng.randn(256, 256, dtype="float64"), "y": rng.randn(256, 256, dtype="float64")}

def run(self, x, y):
    return x @ y
""")

LONG_SUM = spec("Sum few very long rows.")("""
def inputs(self, rng):
    return {"x": rng.randn(8, 65536)}

def run(self, x):
    return x.sum(dim=1)
""")

# As much to store as to compute: what the loop around a call costs is as long as the call.
RELU = spec("Clip a large tensor.")("""
def inputs(self, rng):
    return {"x": rng.randn(512, 512)}

def run(self, x):
    return torch.relu(x)
""")

TINY = spec("Add two very small tensors.")("""
def inputs(self, rng):
    return {"x": rng.randn(32, 32), "y": rng.randn(32, 32)}

def run(self, x, y):
    return torch.softmax(x + y, 1)
""")

SOFTMAX = spec("Softmax over rows.")("""
def inputs(self, rng):
    return {"x": rng.randn(256, 1024)}

def run(self, x):
    return torch.softmax(x, 1)
""")

SOLVER = spec("A hundred damped steps towards the solution of a linear system, far from converged.")("""
def inputs(self, rng):
    a = rng.randn(96, 96, scale=1.0, shift=0.0)
    return {"a": a @ a.T / 96, "b": rng.randn(96)}

def run(self, a, b):
    x = torch.zeros_like(b)
    for _ in range(100):
        x = x + 0.05 * (b - a @ x)
    return x
""")

TOPK = spec("The sixteen largest values of each row.")("""
def inputs(self, rng):
    return {"x": rng.randn(32, 16384)}

def run(self, x):
    return x.sort(dim=1, descending=True).values[:, :16].contiguous()
""")

ATTENTION = spec("Attention with a mask of its own for every call.")("""
def inputs(self, rng):
    tensors = {name: rng.randn(1, 4, 128, 32) for name in ("q", "k", "v")}
    mask = rng.bernoulli(0.7, 128, 128)
    mask[:, 0] = True
    return {**tensors, "mask": mask}

def run(self, q, k, v, mask):
    scores = (q @ k.transpose(-1, -2) / 32**0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1) @ v
""")

KV_CACHE = spec("One new token of eight heads against a cache of 1024 old ones.")("""
def inputs(self, rng):
    return {"q": rng.randn(8, 1, 64), "k": rng.randn(8, 1024, 64), "v": rng.randn(8, 1024, 64)}

def run(self, q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
""")

CONV = spec("A convolution of 3 by 3.")("""
def params(self, rng):
    return {"w": rng.randn(32, 32, 3, 3)}

def inputs(self, rng):
    return {"x": rng.randn(1, 32, 64, 64)}

def run(self, x, w):
    return F.conv2d(x, w, padding=1)
""")

BRANCH = spec("Two formulas; the input decides.")("""
def inputs(self, rng):
    return {"x": rng.randn(256, 256)}

def run(self, x):
    return torch.softmax(x * 2, 1) if x.sum() > 0 else torch.softmax(x - 3, 0)
""")

SCALED_ROWS = spec("A product whose rows differ by many orders of magnitude.")("""
def params(self, rng):
    return {"w": rng.randn(256, 256)}

def inputs(self, rng):
    return {"x": rng.randn(256, 256), "s": rng.randn(256)}

def run(self, x, s, w):
    return (x @ w) * torch.exp(8 * s.clamp(-4, 4))[:, None]
""")

LOG = spec("A logarithm that is NaN and infinite by contract.")("""
tolerance = Tolerance(nan=True)

def inputs(self, rng):
    return {"x": rng.randn(256, 512)}

def run(self, x):
    return torch.log(x.clamp_min(-1).where(x.abs() > 0.1, torch.zeros(())))
""")

IN_PLACE = spec("Clip and scale where the data lies.")("""
in_place = ("x",)

def inputs(self, rng):
    return {"x": rng.randn(256, 512)}

def run(self, x):
    return x.relu_().mul_(0.5)
""")

PARAMETER = spec("The result is a Parameter by contract.")("""
def inputs(self, rng):
    return {"x": rng.randn(256, 512)}

def run(self, x):
    return torch.nn.Parameter(torch.softmax(x, 1), requires_grad=False)
""")

SUBNORMAL = spec("Halve values of which many are subnormal.")("""
def inputs(self, rng):
    return {"x": rng.randn(256, 512) * 2.0**-126}

def run(self, x):
    return (x * 0.5).cumsum(1)
""")

GATHER = spec("Sum the rows that a list names.")("""
def inputs(self, rng):
    return {"x": rng.randn(1024, 128), "index": rng.randint(0, 1024, 512)}

def run(self, x, index):
    return torch.stack([x[i] for i in index.tolist()]).sum(0)
""")

# One process plays four ranks: every rank's contribution is an input and every rank's result is an output.
ALL_REDUCE = spec("Every rank ends with the sum of all ranks.")("""
def inputs(self, rng):
    return {f"rank{i}": rng.randn(256, 256) for i in range(4)}

def run(self, **ranks):
    total = torch.stack(list(ranks.values())).sum(0)
    return [total.clone() for _ in ranks]
""")

PIPELINE = spec("Eight parts of a batch through two stages.")("""
def params(self, rng):
    return {"first": rng.randn(256, 256), "second": rng.randn(256, 256)}

def inputs(self, rng):
    return {"x": rng.randn(8, 64, 256)}

def run(self, x, first, second):
    return torch.stack([torch.relu(part @ first) @ second for part in x])
""")

SHARDS = spec("Multiply by a matrix that lies in two shards.")("""
def params(self, rng):
    return {"left": rng.randn(256, 128), "right": rng.randn(256, 128)}

def inputs(self, rng):
    return {"x": rng.randn(256, 256)}

def run(self, x, left, right):
    return torch.cat([x @ left, x @ right], 1)
""")

SCRIPTED = spec("A function that is compiled at its first call.")("""
compiled = None

def inputs(self, rng):
    return {"x": rng.randn(256, 256)}

def run(self, x):
    if self.compiled is None:
        self.compiled = torch.jit.trace(lambda x: torch.softmax(x * 2 + 1, 1), (x,))
    return self.compiled(x)
""")

COPIES = spec("Sixteen copies, summed; what counts is memory.")("""
goal = "memory"

def inputs(self, rng):
    return {"x": rng.randn(512, 512)}

def run(self, x):
    return x.expand(16, 512, 512).clone().sum(0)
""")

COPY = spec("A copy.")("""
def inputs(self, rng):
    return {"x": rng.randn(1024, 1024)}

def run(self, x):
    return x.clone()
""")
