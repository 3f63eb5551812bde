"""More honest alternatives: other formulas of reductions, normalisations, products and scans.

By name: the inputs, the baseline, and the alternatives. Programs take tensors by position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from honest_native import native
from honest_programs import Operation, by_numpy, matrix, two


def keyed(rng: Any) -> dict[str, Any]:
    return {"x": rng.randn(2048, 32), "keys": rng.randint(0, 64, 2048)}


def bags(rng: Any) -> dict[str, Any]:
    return {"table": rng.randn(256, 48), "ids": rng.randint(0, 256, 64, 16)}


def halves(x: Any) -> Any:
    """A sum over the last dimension, a power of two wide, in a tree."""
    while x.shape[-1] > 1:
        x = x[..., : x.shape[-1] // 2] + x[..., x.shape[-1] // 2 :]
    return x[..., 0]


def merged_in_a_tree(x: Any) -> Any:
    """The variance of each row, from the moments of halves."""
    mean, spread, count = x[..., None], torch.zeros(*x.shape, 1), 1
    while mean.shape[1] > 1:
        apart = mean[:, 0::2] - mean[:, 1::2]
        spread = spread[:, 0::2] + spread[:, 1::2] + apart.square() * (count / 2)
        mean, count = (mean[:, 0::2] + mean[:, 1::2]) / 2, count * 2
    return spread[:, 0, 0] / count


def shifted_variance(x: Any) -> Any:
    """In one pass, of deviations from an estimate of the mean. A single element would be a bad one: where it is an
    outlier, half of the digits cancel, and that is refused.
    """
    apart = x - x[:, :32].mean(1, keepdim=True)
    return apart.square().mean(1) - apart.mean(1).square()


def softmax_in_blocks(x: Any) -> Any:
    parts = x.view(len(x), 8, -1)
    most = parts.amax(2, keepdim=True)
    powers = (parts - most).exp()
    weights = (most - most.amax(1, keepdim=True)).exp()
    return (powers * (weights / (weights * powers.sum(2, keepdim=True)).sum(1, keepdim=True))).view(x.shape)


def log_add_tree(x: Any) -> Any:
    while x.shape[1] > 1:
        x = torch.logaddexp(x[:, 0::2], x[:, 1::2])
    return x[:, 0]


def one_pass_norm(x: Any) -> Any:
    """The layer norm from the sums of deviations from an estimate of each row's mean."""
    apart = x - x[:, :32].mean(1, keepdim=True)
    mean = apart.mean(1, keepdim=True)
    variance = (apart.square().mean(1, keepdim=True) - mean.square()).clamp_min(0)
    return (apart - mean) / (variance + 1e-5).sqrt()


def scaled_columns(x: Any) -> Any:
    """The batch norm as a factor and an offset of each column."""
    variance, mean = torch.var_mean(x, 0, unbiased=False)
    factor = torch.rsqrt(variance + 1e-5)
    return torch.addcmul(-mean * factor, x, factor)


def circular(x: Any, y: Any) -> Any:
    return torch.stack([(x * y.flip(1).roll(shift + 1, 1)).sum(1) for shift in range(x.shape[1])], 1)


def winograd_in_a_row(x: Any, y: Any) -> Any:
    """F(2, 3) along the rows."""
    tiles = x.unfold(1, 4, 2)
    a, b, c, d = tiles.unbind(2)
    g, h, k = y.unbind(1)
    one, two_, three, four = (
        (a - c) * g[:, None],
        (b + c) * ((g + h + k) / 2)[:, None],
        (c - b) * ((g - h + k) / 2)[:, None],
        (b - d) * k[:, None],
    )
    return torch.stack([one + two_ + three, two_ - three - four], 2).flatten(1)


def blocks_of_columns(x: Any) -> Any:
    parts = x.view(len(x), -1, 32)
    inner = parts @ torch.triu(torch.ones(32, 32))
    before = inner[:, :, -1].cumsum(1) - inner[:, :, -1]
    return (inner + before[:, :, None]).view(x.shape)


def suffixes_by_the_total(x: Any) -> Any:
    return x.sum(1, keepdim=True) - x.cumsum(1) + x


def segments(x: Any, keys: Any) -> Any:
    return torch.zeros(64, x.shape[1]).index_add_(0, keys, x)


def sorted_segments(x: Any, keys: Any) -> Any:
    order = keys.argsort(stable=True)
    counts = torch.bincount(keys, minlength=64).tolist()
    return torch.stack([part.sum(0) for part in x[order].split(counts)])


def added_at(x: Any, keys: Any) -> Any:
    found = np.zeros((64, x.shape[1]), np.float32)
    np.add.at(found, keys.numpy(), x.numpy())
    return torch.from_numpy(found)


def segments_by_prefixes(x: Any, keys: Any) -> Any:
    """Differences of the running totals in the order of the keys."""
    totals = torch.cat([torch.zeros(1, x.shape[1]), x[keys.argsort(stable=True)].double().cumsum(0)])
    ends = torch.bincount(keys, minlength=64).cumsum(0)
    return (totals[ends] - totals[torch.cat([ends.new_zeros(1), ends[:-1]])]).float()


def box(x: Any) -> Any:
    return F.avg_pool1d(x[None], 16, 1)[0]


def box_by_totals(x: Any) -> Any:
    totals = F.pad(x.cumsum(1), (1, 0))
    return (totals[:, 16:] - totals[:, :-16]) / 16


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    return torch.tril(q @ k.T) @ v


def linear_attention_in_chunks(q: Any, k: Any, v: Any) -> Any:
    state, found = torch.zeros(k.shape[1], v.shape[1]), []
    for queries, keys, values in zip(q.split(32), k.split(32), v.split(32), strict=True):
        found.append(queries @ state + torch.tril(queries @ keys.T) @ values)
        state = state + keys.T @ values
    return torch.cat(found)


FORMS: dict[str, Operation] = {
    "welford": (
        matrix(),
        lambda x: x.var(1, unbiased=False),
        {
            "element_by_element": lambda x: native("welford", x, len(x)),
            "tree": merged_in_a_tree,
            "numpy": by_numpy(lambda x: x.var(1)),
            "shifted": shifted_variance,
        },
    ),
    "tree_sums": (
        matrix(64, 4096),
        lambda x: x.sum(1),
        {
            "halves": halves,
            "neighbours": lambda x: halves(x.view(len(x), 64, 64).mT).sum(1),
            "numpy": by_numpy(lambda x: x.sum(1)),
            "loop": lambda x: native("ordered_sum", x, len(x)),
            "blocks": lambda x: x.view(len(x), -1, 128).sum(2).sum(1),
        },
    ),
    "column_sums": (
        matrix(4096, 64),
        lambda x: x.sum(0),
        {
            "ones": lambda x: torch.ones(len(x)) @ x,
            "numpy": by_numpy(lambda x: np.add.reduce(x, 0)),
            "turned": lambda x: x.T.contiguous().sum(1),
        },
    ),
    "whole_mean_square": (
        matrix(128, 2048),
        lambda x: x.square().mean(),
        {
            "loop": lambda x: native("squares", x.view(1, -1), 1)[0] / x.numel(),
            "dot": lambda x: torch.dot(x.flatten(), x.flatten()) / x.numel(),
            "norm": lambda x: x.norm().square() / x.numel(),
            "rows": lambda x: x.square().mean(1).mean(),
        },
    ),
    "blocked_softmax": (
        matrix(),
        lambda x: torch.softmax(x, 1),
        {
            "blocks": softmax_in_blocks,
            "compiled": torch.compile(lambda x: torch.softmax(x, 1)),
            "numpy": by_numpy(lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True)),
            "by_log": lambda x: torch.log_softmax(x, 1).exp(),
            "loop": lambda x: native("online_softmax", x, x.numel()).view(x.shape),
        },
    ),
    "log_sum_exp_forms": (
        matrix(),
        lambda x: torch.logsumexp(x, 1),
        {
            "tree": log_add_tree,
            "numpy": by_numpy(lambda x: np.logaddexp.reduce(x, 1)),
            "first": lambda x: x.amax(1) + (x - x.amax(1, keepdim=True)).exp().sum(1).log(),
            "by_softmax": lambda x: x[:, 0] - torch.log_softmax(x, 1)[:, 0],
        },
    ),
    "layer_norm_forms": (
        matrix(),
        lambda x: F.layer_norm(x, x.shape[1:]),
        {
            "one_pass": one_pass_norm,
            "compiled": torch.compile(lambda x: F.layer_norm(x, x.shape[1:])),
            "loop": lambda x: native("layer_norm", x, x.numel()).view(x.shape),
            "numpy": by_numpy(lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
        },
    ),
    "batch_norm": (
        matrix(512, 64),
        lambda x: F.batch_norm(x, None, None, training=True),
        {
            "factors": scaled_columns,
            "turned": lambda x: F.layer_norm(x.T, (len(x),)).T,
            "moments": lambda x: (x - x.mean(0)) * torch.rsqrt((x * x).mean(0) - x.mean(0).square() + 1e-5),
        },
    ),
    "row_cosines": (
        two((256, 128), (256, 128)),
        F.cosine_similarity,
        {
            "dots": lambda x, y: (x * y).sum(1) * torch.rsqrt(((x * x).sum(1) * (y * y).sum(1)).clamp_min(1e-32)),
            "einsum": lambda x, y: (
                torch.einsum("ij,ij->i", x, y) / (x.norm(dim=1).clamp_min(1e-8) * y.norm(dim=1).clamp_min(1e-8))
            ),
            "normalised": lambda x, y: (F.normalize(x, dim=1, eps=1e-8) * F.normalize(y, dim=1, eps=1e-8)).sum(1),
        },
    ),
    "circular_convolution": (
        two((16, 256), (16, 256)),
        circular,
        {"fft": lambda x, y: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y), x.shape[1])},
    ),
    "short_convolution": (
        two((64, 1024), (64, 3)),
        lambda x, y: F.conv1d(x[None], y[:, None], groups=len(x))[0],
        {"winograd": winograd_in_a_row, "taps": lambda x, y: sum(y[:, i, None] * x[:, i : i + 1022] for i in range(3))},
    ),
    "einsum_chain": (
        two((32, 48), (48, 64), (64, 40), (40, 16)),
        lambda x, y, z, w: ((x @ y) @ z) @ w,
        {
            "einsum": lambda x, y, z, w: torch.einsum("ab,bc,cd,de->ae", x, y, z, w),
            "from_the_right": lambda x, y, z, w: x @ (y @ (z @ w)),
            "middle": lambda x, y, z, w: (x @ (y @ z)) @ w,
            "numpy": by_numpy(lambda x, y, z, w: np.linalg.multi_dot([x, y, z, w])),
        },
    ),
    "bilinear": (
        two((256, 64), (64, 48), (256, 48)),
        lambda x, y, z: torch.einsum("bi,ij,bj->b", x, y, z),
        {"product": lambda x, y, z: ((x @ y) * z).sum(1), "other_side": lambda x, y, z: (x * (z @ y.T)).sum(1)},
    ),
    "trace": (
        two((128, 256), (256, 128)),
        lambda x, y: torch.trace(x @ y),
        {"products": lambda x, y: (x * y.T).sum(), "diagonal": lambda x, y: torch.einsum("ij,ji->i", x, y).sum()},
    ),
    "blocked_totals": (
        matrix(),
        lambda x: x.cumsum(1),
        {"triangles": blocks_of_columns, "loop": lambda x: native("ordered_scan", x, x.numel()).view(x.shape)},
    ),
    "suffix_sums": (matrix(), lambda x: x.flip(1).cumsum(1).flip(1), {"total": suffixes_by_the_total}),
    "decays": (
        matrix(64, 128),
        lambda x: torch.sigmoid(x + 3).cumprod(1),
        {"logs": lambda x: F.logsigmoid(x + 3).cumsum(1).exp()},
    ),
    "segment_sums": (
        keyed,
        segments,
        {
            "sorted": sorted_segments,
            "one_hot": lambda x, keys: F.one_hot(keys, 64).T.float() @ x,
            "numpy": added_at,
            "prefixes": segments_by_prefixes,
            "scatter": lambda x, keys: torch.zeros(64, 32).scatter_add_(0, keys[:, None].expand(x.shape), x),
        },
    ),
    "embedding_bag": (
        bags,
        lambda table, ids: F.embedding_bag(ids, table, mode="mean"),
        {
            "gathered": lambda table, ids: table[ids].mean(1),
            "counts": lambda table, ids: F.one_hot(ids, 256).sum(1).float() @ table / ids.shape[1],
        },
    ),
    "box_filter": (matrix(), box, {"totals": box_by_totals, "ones": lambda x: x.unfold(1, 16, 1).sum(2) / 16}),
    "linear_attention": (
        two((128, 32), (128, 32), (128, 32)),
        linear_attention,
        {"chunks": linear_attention_in_chunks},
    ),
    "unmasked_linear_attention": (
        two((128, 32), (128, 32), (128, 32)),
        lambda q, k, v: (q @ k.T) @ v,
        {"keys_first": lambda q, k, v: q @ (k.T @ v)},
    ),
    "triangular_mean": (
        matrix(128, 128),
        lambda x: torch.tril(torch.ones(128, 128)) @ x / torch.arange(1, 129)[:, None],
        {"totals": lambda x: x.cumsum(0) / torch.arange(1, 129)[:, None]},
    ),
}
