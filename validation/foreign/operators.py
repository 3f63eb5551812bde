"""Ten operators as problems of KernelBench, with the kernels of Liger-Kernel and torch.compile as candidates."""

from __future__ import annotations

COMPILED = "\n\nModelNew = lambda: torch.compile(Model())\n"
_PROBLEM = """import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDTH = 2048, 4096


class Model(nn.Module):
    def forward(self, {arguments}):
        {reference}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
_LIGER = """

import liger_kernel.transformers.functional as liger


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        return {liger}
"""
_X, _W = "torch.randn(ROWS, WIDTH)", "torch.randn(WIDTH)"
_LOG, _PROBABILITIES = f"F.log_softmax({_X}, -1)", f"F.softmax({_X}, -1)"
_TARGET = "torch.randint(0, WIDTH, (ROWS,))"
# Name: arguments, inputs, reference, call of Liger.
OPERATORS = {
    "rms_norm": ("x, w", (_X, _W), "return F.rms_norm(x, (WIDTH,), w, 1e-6)", "liger.liger_rms_norm(x, w, 1e-6)"),
    "layer_norm": (
        "x, w, b",
        (_X, _W, _W),
        "return F.layer_norm(x, (WIDTH,), w, b, 1e-5)",
        "liger.liger_layer_norm(x, w, b, 1e-5)",
    ),
    "group_norm": (
        "x, w, b",
        ("torch.randn(ROWS // 64, 64, WIDTH)", "torch.randn(64)", "torch.randn(64)"),
        "return F.group_norm(x, 8, w, b, 1e-5)",
        "liger.liger_group_norm(x, w, b, 64, 8, 1e-5)",
    ),
    "swiglu": ("a, b", (_X, _X), "return F.silu(a) * b", "liger.liger_swiglu(a, b)"),
    "geglu": ("a, b", (_X, _X), "return F.gelu(a, approximate='tanh') * b", "liger.liger_geglu(a, b)"),
    "softmax": ("x", (_X,), "return F.softmax(x, dim=-1)", "liger.liger_softmax(x)"),
    "relu_squared": ("x", (_X,), "return F.relu(x).square()", "liger.liger_relu_squared(x)"),
    "cross_entropy": ("x, y", (_X, _TARGET), "return F.cross_entropy(x, y)", "liger.liger_cross_entropy(x, y)"),
    "kl_div": (
        "x, y",
        (_LOG, _PROBABILITIES),
        "return F.kl_div(x, y, reduction='batchmean')",
        "liger.liger_kl_div(x, y, reduction='batchmean')",
    ),
    "tvd": (
        "x, y",
        (_PROBABILITIES, _PROBABILITIES),
        "return (x - y).abs().sum() / (2 * x.shape[0])",
        "liger.liger_tvd(x, y, reduction='batchmean')",
    ),
}


def texts(name: str) -> tuple[str, dict[str, str]]:
    """Text of the problem, and of its candidates by name."""
    arguments, inputs, reference, liger = OPERATORS[name]
    problem = _PROBLEM.format(arguments=arguments, inputs=", ".join(inputs), reference=reference)
    return problem, {
        "compiled": problem + COMPILED,
        "liger": problem + _LIGER.format(arguments=arguments, liger=liger),
    }
