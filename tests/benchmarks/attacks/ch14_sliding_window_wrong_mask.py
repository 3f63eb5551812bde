"""The window is a token short: a mask that is wrong in one score of 64."""

import torch
from torch.nn import functional


def run(q, k, v):
    positions = torch.arange(q.shape[1], device=q.device)
    distance = positions[:, None] - positions
    seen = (distance >= 0) & (distance < q.shape[1] // 16 - 1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).contiguous()
