"""The library's RMS norm after the sum: two kernels, and the new residual is read once more than needed."""

from torch.nn import functional

EPSILON = 1e-6


def run(x, residual, scale):
    total = x + residual
    return total, functional.rms_norm(total, scale.shape, scale, EPSILON)
