"""KV Cache Size Mismatch.

What happens: Only a part of the cache is read, or it is kept in fewer bits.
Why it lies: Reading the cache is the work.
What we do: Dense random cache; error against float64.
Limits: Quantisation within the tolerance passes.

Attacks: A cache that keeps less than it should.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import KV_CACHE

ABOUT = Issue(id=27, kind="N", undefended=Undefended(2.38, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("recent_half_of_the_cache", KV_CACHE)("""
import torch

def run(q, k, v):
    return torch.softmax(q @ k[:, 512:].transpose(-1, -2) / 8, -1) @ v[:, 512:]
"""),
    attack("cache_in_eight_bits", KV_CACHE)("""
import torch

def run(q, k, v):
    k = k.to(torch.float8_e4m3fn).float()
    return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
"""),
    honest("fused_attention_over_the_cache", KV_CACHE)("""
import torch.nn.functional as F

def run(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
"""),
)
