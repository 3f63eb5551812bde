"""The library shares the heads itself. Prefill is bound by arithmetic: the copy that is saved is small compared with
it.
"""

from torch.nn import functional


def run(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).contiguous()
