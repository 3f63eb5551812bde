"""Thermal Throttling.

What happens: The device is heated before the other side runs.
Why it lies: The baseline is measured at lower clocks.
What we do: Palindromes: both sides meet the same temperatures, by turns of milliseconds; clocks are sampled.
Limits: A drift that keeps step with the order of the rounds is not told from the candidate's speed.

Attacks: Heat made for the other side. Seconds of it, no more: the device is not ours alone.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL

ABOUT = Issue(
    id=74,
    kind="D",
    hardware="G",
    control="Palindromes: both sides meet the same temperatures",
    undefended=Undefended(why="two seconds of heat did not lower the clocks of an H200."),
    executed_on=("H200",),
)

CASES = (
    attack("device_heated_beforehand", GPU_MATMUL, device="cuda")("""
import time, torch

def prepare(params, example):
    hot, end = torch.randn(8192, 8192, device="cuda"), time.monotonic() + 2
    while time.monotonic() < end:
        hot @ hot
        torch.cuda.synchronize()
    return params

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("tried_out_beforehand", GPU_MATMUL, device="cuda")("""
import torch

def prepare(params, example):
    assert torch.isfinite(example["x"] @ params["w"]).all()
    return params

def run(x, w):
    return torch.relu(x @ w)
"""),
)
