"""Only the blocks on the diagonal are computed: the kept ones next to them are left out."""

from torch.nn import functional


def run(q, k, v, kept):
    q, k, v = (tensor.unflatten(1, (16, -1)) for tensor in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v).flatten(1, 2).contiguous()
