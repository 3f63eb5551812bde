"""Results that functions may return, and inputs on which a baseline may raise: whole comparisons of two functions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from harness_support import LEAST

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.functions import pair
from aisp_mcp.judge.functions.pair import Request
from aisp_mcp.judge.options import ALL, Options, Protections
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Comparison, Verdict

pytestmark = pytest.mark.torch
RIGHT = {Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.INCONCLUSIVE}

DEDUPE = """
    out = []
    for value in values:
        if value not in out:
            out.append(value)
"""
JUDGED = {
    "a list whose length depends on values": (
        f"def f(values):{DEDUPE}    return out\n",
        "def f(values):\n    return list(dict.fromkeys(values))\n",
        "values=list(randint(0, 100, 100))",
    ),
    "a text": (
        "def f(values):\n    text = ''\n    for value in values:\n        text += f'{value},'\n    return text\n",
        "def f(values):\n    return ''.join(f'{value},' for value in values)\n",
        "values=list(randint(0, 300, 300))",
    ),
    "a set and records": (
        "def f(values):\n    return set(values), [{'at': i, 'half': v / 2} for i, v in enumerate(values)], None\n",
        "def f(values):\n    return {*values}, [{'half': 0.5 * v, 'at': i} for i, v in enumerate(values)], None\n",
        "values=list(randint(0, 300, 300))",
    ),
    "arrays beside texts, and keys that are numbers": (
        "import numpy as np\n\ndef f(x):\n    y = x.astype(np.float32)\n"
        "    return {'name': 'sums', 'sums': [y.sum(1), y.sum(0)], 'by': {0.5: float(x.sum())}}\n",
        "import numpy as np\n\ndef f(x):\n    y = x.astype(np.float32)\n"
        "    by = {np.float64(0.5): x.sum()}\n"
        "    return {'sums': [np.cumsum(y, 1)[:, -1], np.cumsum(y, 0)[-1]], 'by': by, 'name': np.str_('sums')}\n",
        "x=np.randn(64, 256)",
    ),
    "a count that is the same for all usual inputs": (
        f"def f(values):{DEDUPE}    return len(out)\n",
        "def f(values):\n    return len(set(values))\n",
        "values=list(randint(0, 30, 1000))",
    ),
    "positions among equal values": (
        "import torch\n\ndef f(x):\n    found = [torch.sort(row, descending=True) for row in x]\n"
        "    return torch.stack([v[:8] for v, _ in found]), torch.stack([i[:8] for _, i in found])\n",
        "import torch\n\ndef f(x):\n    found = torch.topk(x, 8, dim=1)\n    return found.values, found.indices\n",
        "x=torch.randn(32, 256)",
    ),
    "positions among equal sizes": (
        "import torch\n\ndef f(x):\n    return x.abs().argmax(1)\n",
        "def f(x):\n    return x.shape[1] - 1 - x.abs().flip(1).argmax(1)\n",
        "x=randn(64, 64)",
    ),
    "a class that is called, and a coroutine function": (
        "from dataclasses import dataclass\n\n@dataclass\nclass Scaled:\n    factor: float = 1.3\n\n"
        "    def __call__(self, x):\n        return x * self.factor\n",
        "import asyncio\n\nasync def scaled(x):\n    await asyncio.sleep(0)\n    return 1.3 * x\n",
        "x=torch.randn(64)",
    ),
    "a baseline that raises on some inputs": (
        "import torch\n\ndef f(a, b):\n    return torch.linalg.inv(a) @ b\n",
        "import torch\n\ndef f(a, b):\n    return torch.linalg.inv(a) @ b\n",
        "a=torch.randn(16, 16), b=torch.randn(16, 4)",
    ),
}
JUDGED |= {
    "an array in place of a list": (
        "import numpy as np\n\ndef f(x):\n    return [float(value) * 2 for value in x]\n",
        "import numpy as np\n\ndef f(x):\n    return x * 2\n",
        "x=np.randn(20000)",
    ),
    # torch's conversion to bfloat16 writes NaN as an output's memory is filled before each call.
    "NaN in bfloat16 where only the candidate overflows": (
        "import torch\n\ndef f(x):\n    h = x.float()\n    h = h - h.mean(1, keepdim=True)\n"
        "    return (h * torch.rsqrt(h.var(1, keepdim=True, correction=0) + 1e-6)).to(x.dtype)\n",
        "import torch\n\ndef f(x):\n    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-6)\n",
        "x=randn(64, 256, dtype=bfloat16)",
    ),
}
JUDGED |= {
    "counts of a histogram, near an edge": (
        "import numpy as np\n\ndef f(x):\n    counts = np.zeros(32, np.int64)\n    for v in x.tolist():\n"
        "        if -4 <= v <= 4:\n            counts[min(int((v + 4) * 4), 31)] += 1\n    return counts\n",
        "import numpy as np\n\ndef f(x):\n    return np.histogram(x, bins=32, range=(-4, 4))[0]\n",
        "x=np.randn(500)",
    ),
    "a range that its user declares": (
        "import torch\n\ndef f(x):\n    return torch.exp(x)\n",
        "import torch\n\ndef f(x):\n    return x.exp()\n",
        "x=uniform(-0.001, 0.001, 500)",
    ),
}
LEVELS = "from enum import Enum\n\nclass Level(Enum):\n    LOW = 0\n    HIGH = 1\n\n"
NET = (
    "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.first, self.last = nn.Conv1d(4, 4, 3), nn.Linear(30, 4)\n\n    def forward(self, x):\n        {}\n"
)
DOUBLED = (
    "import functools\n\ndef doubled(function):\n    @functools.wraps(function)\n    def inner(x):\n"
    "        return 2 * function(x)\n    return inner\n\n"
)
BESIDE = (
    "import torch\n\ntorch.manual_seed(1)\nW = torch.randn(30, 8)\n"
    "conv = torch.nn.Sequential(torch.nn.Conv1d(4, 4, 3), torch.nn.BatchNorm1d(4)).eval()\n\n"
)
JUDGED |= {
    "members of an enumeration": (
        f"{LEVELS}def f(values):\n    return [Level.HIGH if value > 5 else Level.LOW for value in values]\n",
        f"{LEVELS}def f(values):\n    return [Level(int(value > 5)) for value in values]\n",
        "values=list(randint(0, 10, 100))",
    ),
    "a module with weights of its own": (
        NET.format("return self.last(torch.relu(self.first(x)))"),
        NET.format("return self.first(x).relu() @ self.last.weight.t() + self.last.bias"),
        "x=torch.randn(16, 4, 32)",
    ),
    "weights and a module beside a function": (
        BESIDE + DOUBLED + "@doubled\ndef inner(x):\n    return conv(x)\n\n"
        "@torch.no_grad()\n@doubled\ndef f(x):\n    return inner(x) @ W\n",
        BESIDE + "def f(x):\n    return torch.matmul(conv(x), 4 * W).detach()\n",
        "x=torch.randn(16, 4, 32)",
    ),
    "moments of groups": (
        "import numpy as np\n\ndef f(k, y):\n    kinds = sorted({*k.tolist()})\n"
        "    return np.array(kinds), np.array([y[k == each].var() for each in kinds])\n",
        "import numpy as np\n\ndef f(k, y):\n    kinds, at = np.unique(k, return_inverse=True)\n"
        "    count = np.bincount(at)\n    apart = y - (np.bincount(at, y) / count)[at]\n"
        "    return kinds, np.bincount(at, apart**2) / count\n",
        "k=np.randint(0, 9, 5000), y=np.randn(5000)",
    ),
    "an integer that no tensor holds": (
        "def f(values):\n    product = 1\n    for value in values:\n        product *= value\n    return product\n",
        "import math\n\ndef f(values):\n    return math.prod(values)\n",
        "values=list(randint(2, 1000, 50))",
    ),
    "floats whose number depends on values, and an array of them": (
        "import numpy as np\n\ndef f(x):\n    return [value * value for value in x.tolist() if value > 0]\n",
        "import numpy as np\n\ndef f(x):\n    return np.square(x[x > 0])\n",
        "x=np.randn(500)",
    ),
    "a few answers of a text, equal for many": (
        "def f(text):\n    return 'GATTA' in text\n",
        "def f(text):\n    return text.find('GATTA') >= 0\n",
        "text=text(600, 'ACGT')",
    ),
    # torch.maximum sets all bits of NaN, as an output's memory is filled before each call.
    "NaN in the baseline's own output": (
        "import torch\n\ndef f(x):\n    return torch.maximum(x.log(), x)\n",
        "import torch\n\ndef f(x):\n    return torch.log(x).maximum(x)\n",
        "x=randn(64, 64)",
    ),
    "missing values": (
        "import numpy as np\n\ndef f(x):\n    means = np.full(len(x), np.nan)\n    for i in range(6, len(x)):\n"
        "        means[i] = np.nanmean(x[i - 6:i + 1])\n    return means\n",
        "import numpy as np\n\ndef f(x):\n    windows = np.lib.stride_tricks.sliding_window_view(x, 7)\n"
        "    return np.concatenate([np.full(6, np.nan), np.nanmean(windows, axis=1)])\n",
        "x=np.randn(100)",
    ),
}
JUDGED |= {
    "an input that is changed, and nothing returned": (
        "def f(x):\n    for part in x.split(100):\n        part.clamp_(-1, 1)\n",
        "def f(x):\n    x.clamp_(-1, 1)\n",
        "x=torch.randn(2000, in_place=True)",
    ),
}
JUDGED |= {
    "numbers of numpy in place of Python's": (
        "from itertools import accumulate\n\ndef f(values):\n"
        "    return [[*accumulate(values)], {'all': len(values) > 9}]\n",
        "import numpy as np\n\ndef f(values):\n    return [[*np.cumsum(values)], {'all': np.bool_(len(values) > 9)}]\n",
        "values=list(randint(1, 1000, 500))",
    ),
    "an array of complex numbers in place of a list": (
        "import cmath\n\ndef f(values):\n    return [cmath.exp(1j * value) for value in values]\n",
        "import numpy as np\n\ndef f(values):\n    return np.exp(1j * np.array(values))\n",
        "values=list(randn(200))",
    ),
    "an array and numbers of numpy where the baseline has lists and Python's": (
        "def f(values):\n    return any(value == 7 for value in values), sum(values)\n",
        "import numpy as np\n\ndef f(values):\n    held = np.array(values)\n    return (held == 7).any(), held.sum()\n",
        "values=list(randint(0, 1000, 500))",
    ),
}
SINGULAR = "import numpy as np\n\ndef f(a):\n    return np.linalg.inv(a)\n"
JUDGED |= {
    "a factor by hand, which is a number or NaN where a matrix is singular and cholesky raises": (
        "import numpy as np\n\ndef f(x):\n    a = x @ x.T\n    l = np.zeros_like(a)\n    for j in range(len(a)):\n"
        "        l[j, j] = (a[j, j] - l[j, :j] @ l[j, :j]) ** 0.5\n"
        "        l[j + 1 :, j] = (a[j + 1 :, j] - l[j + 1 :, :j] @ l[j, :j]) / l[j, j]\n    return l\n",
        "import numpy as np\n\ndef f(x):\n    return np.linalg.cholesky(x @ x.T)\n",
        "x=randn(8, 12)",
    ),
    "elimination, which divides by a rounding where inv raises": (
        "import numpy as np\n\ndef f(a):\n    m = np.hstack([a, np.eye(3)])\n    for i in range(3):\n"
        "        p = i + np.argmax(np.abs(m[i:, i]))\n        m[[i, p]] = m[[p, i]]\n        m[i] /= m[i, i]\n"
        "        for j in {0, 1, 2} - {i}:\n            m[j] -= m[j, i] * m[i]\n    return m[:, 3:]\n",
        SINGULAR,
        "a=np.randn(3, 3)",
    ),
}
JUDGED |= {
    "arrays and numbers of numpy where loops make lists": (
        "def f(a, x):\n    n = range(len(a))\n"
        "    product = [[sum(a[i][k] * a[k][j] for k in n) for j in n] for i in n]\n"
        "    order = sorted(range(len(x)), key=lambda i: x[i])\n"
        "    return {'product': product, 'order': order, 'above': [v > 0 for v in x], 'ends': (min(x), max(x))}\n",
        "import numpy as np\n\ndef f(a, x):\n"
        "    ends, order = (x.min(), x.max()), np.argsort(x, kind='stable')\n"
        "    return {'product': a @ a, 'order': order, 'above': x > 0, 'ends': ends}\n",
        "a=np.randn(16, 16), x=np.randn(500)",
    ),
    "an array of any length where a loop makes a list": (
        "def f(x):\n    return sorted(set(x))\n",
        "import numpy as np\n\ndef f(x):\n    return np.unique(x)\n",
        "x=np.randint(0, 500, 2000)",
    ),
}
DELTA = (
    "import torch\n\ndef f(k, v, b):\n    k, out = 0.18 * k, torch.empty_like(v)\n"
    "    state = torch.zeros(k.shape[1], v.shape[1])\n"
)
JUDGED["a recurrence in blocks, on inputs with which it grows and nearly overflows"] = (
    f"{DELTA}    for t in range(len(k)):\n        state = state - torch.outer(b[t] * k[t], k[t] @ state - v[t])\n"
    "        out[t] = k[t] @ state\n    return out\n",
    f"{DELTA}    for at in range(0, len(k), 16):\n"
    "        ks, vs, bs = k[at : at + 16], v[at : at + 16], b[at : at + 16, None]\n        pairs = ks @ ks.T\n"
    "        new = torch.linalg.solve(torch.eye(16) + bs * pairs.tril(-1), bs * (vs - ks @ state))\n"
    "        out[at : at + 16], state = ks @ state + pairs.tril() @ new, state + ks.T @ new\n    return out\n",
    "k=randn(256, 32, scale=1, shift=0), v=randn(256, 32), b=rand(256)",
)
COMMON_ENDS = (
    "def f(a, b):\n    p = q = 0\n    while p < min(len(a), len(b)) and a[p] == b[p]:\n        p += 1\n"
    "    while q < {} and a[-1 - q] == b[-1 - q]:\n        q += 1\n    return [a[p:len(a) - q], b[p:len(b) - q]]\n"
)
WRONG = {
    "a list of lists where the baseline returns an array": (
        "def f(x):\n    return [[2 * v for v in row] for row in x.tolist()]\n",
        ("def f(x):\n    return 2 * x\n", "", "x=np.randn(40, 40)"),
    ),
    "a dict where the baseline returns an array": (
        "def f(x):\n    return {'doubled': 2 * x}\n",
        ("def f(x):\n    return 2 * x\n", "", "x=np.randn(40, 40)"),
    ),
    "an inverse that raises for other matrices": (
        SINGULAR.replace("    return", "    if not a.all():\n        raise ValueError(a)\n    return"),
        (SINGULAR, "", "a=np.randn(3, 3)"),
    ),
    "half of an input that is to be changed": (
        "def f(x):\n    x[:1000].clamp_(-1, 1)\n",
        JUDGED["an input that is changed, and nothing returned"],
    ),
    "an input that only unusual values change": (
        "def f(x):\n    pass\n",
        (
            JUDGED["an input that is changed, and nothing returned"][0],
            "",
            "x=torch.randn(2000, scale=0.05, shift=0, in_place=True)",
        ),
    ),
    "a module left out": (
        BESIDE + "def f(x):\n    return torch.matmul(x[:, :, :30], W)\n",
        JUDGED["weights and a module beside a function"],
    ),
    "an error on equal values": (
        "import numpy as np\n\ndef f(x):\n    assert np.ptp(x)\n    return np.square(x[x > 0])\n",
        JUDGED["floats whose number depends on values, and an array of them"],
    ),
    "a variance as a difference of squares": (
        "import numpy as np\n\ndef f(k, y):\n    kinds, at = np.unique(k, return_inverse=True)\n"
        "    count = np.bincount(at)\n"
        "    return kinds, np.bincount(at, y * y) / count - (np.bincount(at, y) / count) ** 2\n",
        JUDGED["moments of groups"],
    ),
    "a sum that is off by less than a billionth": (
        "import numpy as np\n\ndef f(x):\n    return np.square(x[x > 0]) * (1 + 1e-10)\n",
        JUDGED["floats whose number depends on values, and an array of them"],
    ),
    "missing values that count as zeros": (
        JUDGED["missing values"][1].replace("view(x", "view(np.nan_to_num(x)"),
        JUDGED["missing values"],
    ),
    "another member": (
        f"{LEVELS}def f(values):\n    return [Level(int(value > 4)) for value in values]\n",
        JUDGED["members of an enumeration"],
    ),
    "another order": (
        "def f(values):\n    return [*dict.fromkeys(values)][::-1]\n",
        JUDGED["a list whose length depends on values"],
    ),
    "separators that are single in usual texts": (
        "import re\n\ndef f(text):\n    return [re.sub('[^a-z]', '-', each) for each in text.splitlines()]\n",
        (
            "import re\n\ndef f(text):\n    return [re.sub('[^a-z]+', '-', each) for each in text.splitlines()]\n",
            "",
            "text=lines(20)",
        ),
    ),
    "letters that are not in usual texts": (
        "import re\n\ndef f(text):\n    return re.findall(r'\\w+', text)\n",
        ("import re\n\ndef f(text):\n    return re.findall(r'[^\\W_]+', text)\n", "", "text=text(500)"),
    ),
    "a mask that hides everything": (
        "import torch\n\ndef f(x, keep):\n    return x.masked_fill(~keep, -torch.inf).softmax(1)\n",
        (
            "import torch\n\ndef f(x, keep):\n    weights = x.masked_fill(~keep, -torch.inf).softmax(1)\n"
            "    return weights.masked_fill(~keep, 0.0)\n",
            "",
            "x=randn(32, 16), keep=bernoulli(0.7, 32, 16)",
        ),
    ),
    "rows that are all ignored": (
        "def f(x, of):\n    return x[of >= 0].mean()\n",
        (
            "import numpy as np\n\ndef f(x, of):\n    some = x[of >= 0]\n    return some.sum() / max(len(some), 1)\n",
            "",
            "x=randn(999), of=randint(-1, 1000, 999)",
        ),
    ),
    "signs of a sparse matrix": (
        "import numpy as np\n\ndef f(a):\n    return np.asarray(a.sum(1)).ravel()\n",
        (
            "import numpy as np\n\ndef f(a):\n    return np.asarray(abs(a).sum(1)).ravel()\n",
            "",
            "a=sparse(30, 30, 0.1)",
        ),
    ),
    "another key": (
        "def f(values):\n    return {0.25: len(values), 'of': values}\n",
        ("def f(values):\n    return {0.5: len(values), 'of': values}\n", "", "values=list(randint(0, 9, 99))"),
    ),
    "halves that are rounded up": (
        "import torch\n\ndef f(x):\n    return torch.floor(x * 8 + 0.5).to(torch.int8)\n",
        ("import torch\n\ndef f(x):\n    return torch.round(x * 8).to(torch.int8)\n", "", "x=randn(64, 64)"),
    ),
    "a beginning and an end of two texts that overlap": (
        COMMON_ENDS.format("min(len(a), len(b))"),
        (COMMON_ENDS.format("min(len(a), len(b)) - p"), "", "a=text(60), b=text(50)"),
    ),
    "capitals that are not in usual words": (
        "def f(a, b):\n    return sorted({*a} & {*b})\n",
        (
            "def f(a, b):\n    return sorted({*map(str.lower, a)} & {*map(str.lower, b)})\n",
            "",
            "a=words(60), b=words(60)",
        ),
    ),
    "ranks of equal scores": (
        "import numpy as np\n\ndef f(y, x):\n    rank = np.argsort(np.argsort(x))\n"
        "    return (rank * y).sum() / len(x) ** 2\n",
        (
            "import numpy as np\n\ndef f(y, x):\n"
            "    rank = np.array([(x < one).sum() + ((x == one).sum() - 1) / 2 for one in x])\n"
            "    return (rank * y).sum() / len(x) ** 2\n",
            "",
            "y=np.bernoulli(0.3, 300), x=np.randn(300)",
        ),
    ),
    "other elements that are hidden": (
        "import numpy as np\n\ndef f(x):\n    return np.ma.masked_greater(x, 2)\n",
        ("import numpy as np\n\ndef f(x):\n    return np.ma.masked_greater(x, 1)\n", "", "x=np.randn(500)"),
    ),
    "the usual count": ("def f(values):\n    return 30\n", JUDGED["a count that is the same for all usual inputs"]),
    "the last of several places among equal numbers": (
        "import torch\n\ndef f(x, bins):\n    return torch.searchsorted(bins.sort().values, x, right=True)\n",
        (
            "import torch\n\ndef f(x, bins):\n    return torch.searchsorted(bins.sort().values, x)\n",
            "",
            "x=randn(64), bins=randn(32)",
        ),
    ),
    "positions of other values": (
        "import torch\n\ndef f(x):\n    values, at = torch.topk(x, 8, dim=1)\n    return values, at.flip(1)\n",
        JUDGED["positions among equal values"],
    ),
}


def judged(
    baseline: str, candidate: str, inputs: str, folder: Path, preset: Preset = LEAST, protections: Protections = ALL
) -> Comparison:
    plan = pair.plan(Request(baseline, candidate, inputs))
    options = Options(preset, "small", "cpu", folder, protections=protections)
    comparison = compare(pair.write(plan, folder), options)
    assert isinstance(comparison, Comparison)
    return comparison


@pytest.mark.parametrize("name", JUDGED)
def test_honest_pairs_are_judged(name: str, tmp_path: Path) -> None:
    baseline, candidate, inputs = JUDGED[name]
    # Inputs without an answer are one in a hundred.
    preset = Preset("many", 1, 0.001, 1, isolated_rounds=1) if "raises" in name else LEAST
    comparison = judged(baseline, candidate, inputs, tmp_path, preset)
    assert comparison.verdict in RIGHT, comparison.sentence
    codes = {flag.code for flag in comparison.flags}
    assert ("same_output" in codes) == ("usual inputs" in name)
    assert ("ties" in codes) == (name.startswith("positions among equal"))
    assert ("undecided" in codes) == ("equal sizes" in name)
    assert ("inputs_not_tested" in codes) == any(
        word in name for word in ("raises", "declares", "NaN in the", "nearly")
    )
    assert ("tiny_inputs" in codes) == ("near an edge" in name)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str, tmp_path: Path) -> None:
    candidate, (baseline, _, inputs) = WRONG[name]
    comparison = judged(baseline, candidate, inputs, tmp_path)
    assert comparison.verdict is Verdict.INCORRECT, comparison
    assert ("if ties allow several answers, let --check decide" in comparison.sentence) == ("the last of" in name)
    if "mask" in name or "missing" in name:
        assert " inputs (" in comparison.sentence  # and what this kind of inputs means
    if name == "the usual count":
        assert "1 of 1 elements differ and must be equal; element 0: 30, not " in comparison.sentence
    assert ("candidate raised on constant inputs: AssertionError" in comparison.sentence) == ("an error" in name)


def test_a_bound_that_is_left_out_is_not_excused(tmp_path: Path) -> None:
    """Numbers on the bound are exact, where no rounding moves them. With this secret, some of these are compared."""
    above, least = (f"import torch\n\ndef f(x):\n    return torch.where(x {how} 1, x, 0.0)\n" for how in (">", ">="))
    plan = pair.plan(Request(least, above, "x=randn(64, 64)"))
    comparison = compare(pair.write(plan, tmp_path), Options(LEAST, "small", "cpu", tmp_path, secret=b"0"))
    assert isinstance(comparison, Comparison)
    assert comparison.verdict is Verdict.INCORRECT, comparison.sentence


REFUSED = {
    "NOT_DETERMINISTIC": (
        "import numpy as np\n\ndef f(x):\n    return x + np.random.randn(len(x))\n",
        "draws its own random numbers",
    ),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_baseline_that_decides_nothing_is_refused_by_its_reason(code: str, tmp_path: Path) -> None:
    text, words = REFUSED[code]
    with pytest.raises(BenchmarkError, match=words) as caught:
        judged(text, text, "x=np.randn(500)", tmp_path)
    assert caught.value.code == code
    assert caught.value.hint


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    text = "import threading\n\ndef f(values):\n    return threading.Lock()\n"
    with pytest.raises(BenchmarkError, match="returned a lock, which cannot be compared"):
        judged(text, text, "values=list(randint(0, 9, 9))", tmp_path)


def test_in_some_rounds_all_make_as_many_arguments_and_in_some_drop_what_they_return(tmp_path: Path) -> None:
    """A faster candidate makes arguments of more calls; only equal numbers can be compared. One second of processor
    time.
    """
    slow, fast = (f"def f(xs):\n    for _ in range({n}):\n        y = sorted(xs)\n    return y\n" for n in (5, 1))
    preset = Preset("some", 1, 0.002, 3, isolated_rounds=1)
    comparison = judged(slow, fast, "xs=list(randint(0, 1000, 500))", tmp_path, preset)
    assert comparison.log_path is not None
    rows = [json.loads(line) for line in Path(comparison.log_path).read_text().splitlines()]
    rounds = [row for row in rows if row["kind"] == "round"]
    halves = [{row["side"]: row for row in rounds[begin : begin + 3]} for begin in range(0, len(rounds), 3)]
    made = [{row["converted"] for row in half.values()} for half in halves]
    assert sum(len(numbers) == 1 for numbers in made) == 3
    for half, numbers in zip(halves, made, strict=True):
        assert half["candidate"]["count"] == half["candidate"]["converted"]
        assert half["baseline"]["count"] < half["candidate"]["count"]
        assert half["baseline"]["converted"] == (half["candidate" if len(numbers) == 1 else "baseline"]["count"])
    [replicate] = [row for row in rows if row["kind"] == "replicate"]
    assert {role: len(seconds) for role, seconds in replicate["dropped_s"].items()} == dict.fromkeys(Role, 1)


LOOP = """
def f(xs):
    total = 0
    for x in xs:
        total = (total * 31 + x) % 1000003
    return total
"""
TOTAL = LOOP.replace("def f", "def total")
EARLY = (
    f"{TOTAL}import sys\n"
    + """

FOUND = {}

def early(values):
    xs = values.tolist()
    FOUND[id(xs)] = xs, total(xs)
    return xs

def f(xs):
    steps = sys._getframe(1).f_locals.get("steps")
    if steps:
        steps.arguments.__globals__["as_list"] = early
    known = FOUND.pop(id(xs), None)
    return known[1] if known and known[0] is xs else total(xs)
"""
)


LATE = (
    f"{TOTAL}import sys\n"
    + """

WAITING = []

def f(xs):
    around = sys._getframe(1).f_locals
    if not around.get("is_late"):
        return total(xs)
    known = around["steps"].is_done.__func__.__globals__
    real = known.setdefault("real", known["array"])

    def array(code, values):
        waiting, WAITING[:] = list(map(total, WAITING)), []
        return real(code, waiting or values)

    known["array"] = array
    WAITING.append(xs)
    return 0
"""
)


@pytest.mark.parametrize("source", [EARLY, LATE], ids=["arguments", "outputs"])
def test_work_done_while_values_are_converted_gains_nothing(source: str, tmp_path: Path) -> None:
    """Its own clock shows 200 times and more. What it takes longer than the baselines to convert counts as its time."""
    several = Preset("several", 3, 0.001, 3, isolated_rounds=1)  # of one pair of processes, the ratio is chance
    on_plain_inputs = replace(ALL, adversarial=False)
    comparison = judged(LOOP, source, "xs=list(randint(0, 1000, 5000))", tmp_path, several, on_plain_inputs)
    assert comparison.ratio is None or comparison.ratio < 2, comparison.sentence  # without one on a busy machine
