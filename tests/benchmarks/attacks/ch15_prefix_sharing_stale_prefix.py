"""Keys and values of the first prefix are kept and used for all later ones: a cache without a key."""

import torch
from torch.nn import functional

cache = {}


def run(prefix, own, qkv):
    requests, tokens = own.shape[:2]
    q, k, v = torch.einsum("rtw,wnhd->nrhtd", own, qkv)
    shared = cache.setdefault("prefix", torch.einsum("tw,wnhd->nhtd", prefix, qkv[:, 1:]))
    k, v = (torch.cat([shared[n].expand(requests, -1, -1, -1), new], dim=2) for n, new in enumerate((k, v)))
    seen = torch.ones(tokens, k.shape[2], dtype=torch.bool, device=own.device).tril(prefix.shape[0])
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).contiguous()
