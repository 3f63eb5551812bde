"""Programs of honest_operations.py, and what draws their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Program = Callable[..., Any]
Operation = tuple[Callable[[Any], dict[str, Any]], Program, dict[str, Program]]


def matrix(rows: int = 64, width: int = 1024) -> Callable[[Any], dict[str, Any]]:
    return lambda rng: {"x": rng.randn(rows, width)}


def two(*shapes: tuple[int, ...]) -> Callable[[Any], dict[str, Any]]:
    names = "xyzw"
    return lambda rng: {name: rng.randn(*shape) for name, shape in zip(names, shapes, strict=False)}


def labelled(rng: Any) -> dict[str, Any]:
    return {"x": rng.randn(64, 512), "labels": rng.randint(0, 512, 64)}


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays as a function of tensors."""
    return lambda *tensors: torch.from_numpy(np.ascontiguousarray(function(*(tensor.numpy() for tensor in tensors))))


def distances(x: Any, y: Any) -> Any:
    return (x[:, None] - y[None]).square().sum(2).sqrt()


def squared_by_product(x: Any, y: Any) -> Any:
    return (x.square().sum(1, keepdim=True) + y.square().sum(1) - 2 * x @ y.T).clamp_min(0)


def moments(x: Any) -> tuple[Any, Any]:
    mean = x.mean(1, keepdim=True)
    return mean, (x.square().mean(1, keepdim=True) - mean.square()).clamp_min(0)


def merged_moments(x: Any) -> tuple[Any, Any]:
    count, mean, spread = 0, torch.zeros(len(x), 1), torch.zeros(len(x), 1)
    for part in x.split(128, 1):
        size, middle = part.shape[1], part.mean(1, keepdim=True)
        delta = middle - mean
        spread = spread + (part - middle).square().sum(1, keepdim=True) + delta.square() * count * size / (count + size)
        mean, count = mean + delta * size / (count + size), count + size
    return mean, spread / count


def online_log_sum_exp(x: Any) -> Any:
    most, total = torch.full((len(x),), -torch.inf), torch.zeros(len(x))
    for part in x.split(128, 1):
        now = torch.maximum(most, part.amax(1))
        total = total * (most - now).exp() + (part - now[:, None]).exp().sum(1)
        most = now
    return total.log() + most


def exp2_softmax(x: Any) -> Any:
    powers = torch.exp2((x - x.amax(1, keepdim=True)) * math.log2(math.e))
    return powers / powers.sum(1, keepdim=True)


def eager_attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v


def flash(q: Any, k: Any, v: Any) -> Any:
    most, total, found = torch.full((len(q), 1), -torch.inf), torch.zeros(len(q), 1), torch.zeros_like(q)
    for keys, values in zip(k.split(32), v.split(32), strict=True):
        scores = q @ keys.T / q.shape[1] ** 0.5
        now = torch.maximum(most, scores.amax(1, keepdim=True))
        weights, old = (scores - now).exp(), (most - now).exp()
        total, found, most = total * old + weights.sum(1, keepdim=True), found * old + weights @ values, now
    return found / total


def split_product(x: Any, w: Any) -> Any:
    return sum(a @ b for a, b in zip(x.split(128, 1), w.split(128, 0), strict=True))


def outer_products(x: Any, w: Any) -> Any:
    total = torch.zeros(len(x), w.shape[1])
    for column in range(x.shape[1]):
        total += x[:, column, None] * w[column]
    return total


def strassen(a: Any, b: Any) -> Any:
    n = len(a) // 2
    a11, a12, a21, a22 = a[:n, :n], a[:n, n:], a[n:, :n], a[n:, n:]
    b11, b12, b21, b22 = b[:n, :n], b[:n, n:], b[n:, :n], b[n:, n:]
    m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    m4, m5, m6, m7 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    upper, lower = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)
    return torch.cat([upper, lower])


def sequential_sum(x: Any) -> Any:
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1)[..., -1].copy())


def kahan_sum(x: Any) -> Any:
    total, lost = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for column in x.unbind(-1):
        value = column - lost
        now = total + value
        lost, total = (now - total) - value, now
    return total


def lanes(x: Any) -> Any:
    """Eight sums side by side, each in order, as a loop of vectors has them."""
    return sequential_sum(x.reshape(*x.shape[:-1], -1, 8).transpose(-1, -2)).sum(-1)


def doubling_scan(x: Any) -> Any:
    step = 1
    while step < x.shape[1]:
        x = torch.cat([x[:, :step], x[:, step:] + x[:, :-step]], 1)
        step *= 2
    return x


def blocked_scan(x: Any) -> Any:
    parts = x.view(len(x), -1, 64).cumsum(2)
    ends = parts[:, :, -1].cumsum(1)
    return (parts + torch.cat([torch.zeros(len(x), 1), ends[:, :-1]], 1)[:, :, None]).reshape(x.shape)


def numpy_scan(x: Any) -> Any:
    return torch.from_numpy(np.cumsum(x.numpy(), axis=1))


def numpy_double_scan(x: Any) -> Any:
    return torch.from_numpy(np.cumsum(np.cumsum(x.numpy(), axis=0), axis=1))


def fft_convolution(x: Any, y: Any) -> Any:
    size = x.shape[1] + y.shape[1] - 1
    found = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(y.flip(1), size), size)
    return found[:, y.shape[1] - 1 : x.shape[1]]


def direct_convolution(x: Any, y: Any) -> Any:
    return F.conv1d(x[None], y[:, None], groups=len(x))[0]


def unfolded_convolution(x: Any, y: Any) -> Any:
    return (x.unfold(1, y.shape[1], 1) * y[:, None]).sum(2)


def winograd(x: Any, y: Any) -> Any:
    """F(2x2, 3x3) without padding; even numbers of output rows and columns."""
    back = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    a = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])
    tiles = x.unfold(2, 4, 2).unfold(3, 4, 2)
    tiles, weights = back @ tiles @ back.T, g @ y @ g.T
    found = a @ torch.einsum("nchwij,ocij->nohwij", tiles, weights) @ a.T
    n, out, height, width = found.shape[:4]
    return found.permute(0, 1, 2, 4, 3, 5).reshape(n, out, 2 * height, 2 * width)


def unfolded_image(x: Any, y: Any) -> Any:
    size = x.shape[2] - y.shape[2] + 1
    return (y.flatten(1) @ F.unfold(x, y.shape[2:])).view(len(x), len(y), size, size)


def divergence(x: Any, y: Any) -> Any:
    return F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean")


def divergence_by_logs(x: Any, y: Any) -> Any:
    log_p, log_q = F.log_softmax(y, 1), F.log_softmax(x, 1)
    return (log_p.exp() * (log_p - log_q)).sum() / len(x)


def divergence_by_entropies(x: Any, y: Any) -> Any:
    log_p, log_q = F.log_softmax(y, 1), F.log_softmax(x, 1)
    p = log_p.exp()
    return ((p * log_p).sum(1) - (p * log_q).sum(1)).mean()


def recurrence(x: Any, y: Any) -> Any:
    """h = g h + x along the columns, g by row and column between 0 and 1."""
    gate, state, found = torch.sigmoid(y), torch.zeros(len(x)), []
    for column in range(x.shape[1]):
        state = gate[:, column] * state + x[:, column]
        found.append(state)
    return torch.stack(found, 1)


def recurrence_by_doubling(x: Any, y: Any) -> Any:
    gate, step = torch.sigmoid(y), 1
    while step < x.shape[1]:
        x = torch.cat([x[:, :step], x[:, step:] + gate[:, step:] * x[:, :-step]], 1)
        gate = torch.cat([gate[:, :step], gate[:, step:] * gate[:, :-step]], 1)
        step *= 2
    return x


def rotated(x: Any, y: Any) -> Any:
    half = x.shape[1] // 2
    a, b, angle = x[:, :half], x[:, half:], y[:, :half]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], 1)


def rotated_as_complex(x: Any, y: Any) -> Any:
    half = x.shape[1] // 2
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones(1), y[:, :half])
    return torch.cat([turned.real, turned.imag], 1)


def layer_norm(x: Any) -> Any:
    return F.layer_norm(x, x.shape[1:])


def normalised(x: Any, mean: Any, variance: Any) -> Any:
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def group_norm(x: Any) -> Any:
    return F.group_norm(x[:, :, None], 8)[:, :, 0]


def group_norm_by_parts(x: Any) -> Any:
    parts = x.view(-1, x.shape[1] // 8)
    return normalised(parts, *moments(parts)).view(x.shape)


def dft(x: Any) -> Any:
    size = x.shape[1]
    angles = (2 * math.pi / size * (torch.outer(torch.arange(size), torch.arange(size)) % size).double()).float()
    return torch.complex(x @ angles.cos(), -(x @ angles.sin()))


def gelu(x: Any) -> Any:
    return F.gelu(x)


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def cosine(x: Any, y: Any) -> Any:
    return F.normalize(x, dim=1) @ F.normalize(y, dim=1).T


def picked(x: Any, labels: Any) -> Any:
    return (torch.logsumexp(x, 1) - x.gather(1, labels[:, None])[:, 0]).mean()


def one_hot_loss(x: Any, labels: Any) -> Any:
    return -(F.one_hot(labels, x.shape[1]) * F.log_softmax(x, 1)).sum(1).mean()


def online_loss(x: Any, labels: Any) -> Any:
    return (online_log_sum_exp(x) - x[torch.arange(len(x)), labels]).sum() / len(x)
