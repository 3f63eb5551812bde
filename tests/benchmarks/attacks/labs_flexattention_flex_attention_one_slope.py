"""All heads get the bias of the first: a score function that forgot to look up its head."""

import math

import torch
from torch.nn import functional


def run(q, k, v, slopes):
    positions = torch.arange(q.shape[2], device=q.device)
    distance = positions[:, None] - positions
    bias = (slopes[0] * -distance).to(q.dtype)
    bias = bias.masked_fill((distance < 0) | (distance >= q.shape[2] // 8), -math.inf)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).contiguous()
