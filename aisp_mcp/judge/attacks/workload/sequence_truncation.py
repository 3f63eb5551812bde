"""Sequence Truncation.

What happens: Old positions are ignored.
Why it lies: Attention costs what it attends to.
What we do: Dense random keys; every element compared.
Limits: Positions of negligible weight can be left out within the tolerance.

Attacks: Attention to the recent past alone.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ATTENTION, KV_CACHE

ABOUT = Issue(id=23, kind="N", undefended=Undefended(2.08, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("half_of_the_keys", ATTENTION)("""
import torch

def run(q, k, v, mask):
    scores = (q @ k[:, :, 64:].transpose(-1, -2) / 32**0.5).masked_fill(~mask[:, 64:], float("-inf"))
    return torch.softmax(scores, -1) @ v[:, :, 64:]
"""),
    attack("all_keys_but_the_first", KV_CACHE)("""
import torch

def run(q, k, v):
    return torch.softmax(q @ k[:, 1:].transpose(-1, -2) / 8, -1) @ v[:, 1:]
"""),
    honest("keys_in_two_blocks", KV_CACHE)("""
import torch

def run(q, k, v):
    parts = [(q @ k[:, s].transpose(-1, -2) / 8, v[:, s]) for s in (slice(0, 512), slice(512, 1024))]
    most = torch.maximum(*(scores.amax(-1, keepdim=True) for scores, _ in parts))
    weights = [torch.exp(scores - most) for scores, _ in parts]
    total = sum(w.sum(-1, keepdim=True) for w in weights)
    return sum(w @ values for w, (_, values) in zip(weights, parts)) / total
"""),
)
