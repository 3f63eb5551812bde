"""The block run eagerly: four kernels that the library has, and no compiler is loaded."""

from torch.nn import functional


def run(x, weight, bias):
    return functional.layer_norm(functional.gelu(x @ weight + bias), x.shape[-1:])
