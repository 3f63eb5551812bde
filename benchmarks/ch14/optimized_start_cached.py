"""The block run eagerly: even with full caches a compiled one loads the compiler first."""

from torch.nn import functional


def run(x, weight, bias):
    return functional.layer_norm(functional.gelu(x @ weight + bias), x.shape[-1:])
