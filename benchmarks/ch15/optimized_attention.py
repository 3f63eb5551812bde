"""Fused attention: scores live in tiles on chip, and the masked half is never computed."""

import torch


def run(q, k, v):
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return fused.contiguous()  # copies only where the chosen kernel lays heads out next to each other
