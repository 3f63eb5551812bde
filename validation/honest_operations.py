"""Honest alternatives of common operations: other orders, other formulas, nothing left out.

By name: the inputs, the baseline, and the alternatives. Programs take tensors by position.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from honest_programs import (
    Operation,
    blocked_scan,
    cosine,
    dft,
    direct_convolution,
    distances,
    divergence,
    divergence_by_entropies,
    divergence_by_logs,
    doubling_scan,
    eager_attention,
    exp2_softmax,
    fft_convolution,
    flash,
    gelu,
    gelu_tanh,
    group_norm,
    group_norm_by_parts,
    kahan_sum,
    labelled,
    lanes,
    layer_norm,
    matrix,
    merged_moments,
    moments,
    normalised,
    numpy_double_scan,
    numpy_scan,
    one_hot_loss,
    online_log_sum_exp,
    online_loss,
    outer_products,
    picked,
    recurrence,
    recurrence_by_doubling,
    rotated,
    rotated_as_complex,
    sequential_sum,
    split_product,
    squared_by_product,
    strassen,
    two,
    unfolded_convolution,
    unfolded_image,
    winograd,
)

OPERATIONS: dict[str, Operation] = {
    "distances": (
        two((96, 64), (80, 64)),
        distances,
        {
            "cdist": torch.cdist,
            "cdist_direct": lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
            "by_product": lambda x, y: squared_by_product(x, y).sqrt(),
        },
    ),
    "squared_distances": (
        two((96, 64), (80, 64)),
        lambda x, y: (x[:, None] - y[None]).square().sum(2),
        {"by_product": squared_by_product, "cdist": lambda x, y: torch.cdist(x, y).square()},
    ),
    "variance": (
        matrix(),
        lambda x: x.var(1, unbiased=False),
        {
            "moments": lambda x: moments(x)[1][:, 0],
            "merged": lambda x: merged_moments(x)[1][:, 0],
            "two_passes": lambda x: (x - x.mean(1, keepdim=True)).square().mean(1),
        },
    ),
    "norms": (
        matrix(),
        lambda x: x.norm(dim=1),
        {
            "squares": lambda x: x.square().sum(1).sqrt(),
            "scaled": lambda x: (
                (x / x.abs().amax(1, keepdim=True).clamp_min(1e-30)).square().sum(1).sqrt() * x.abs().amax(1)
            ),
            "dot": lambda x: torch.einsum("ij,ij->i", x, x).sqrt(),
        },
    ),
    "softmax": (
        matrix(),
        lambda x: torch.softmax(x, 1),
        {"online": lambda x: (x - online_log_sum_exp(x)[:, None]).exp(), "powers_of_two": exp2_softmax},
    ),
    "log_softmax": (
        matrix(),
        lambda x: torch.log_softmax(x, 1),
        {"online": lambda x: x - online_log_sum_exp(x)[:, None], "lse": lambda x: x - x.logsumexp(1, keepdim=True)},
    ),
    "log_sum_exp": (
        matrix(),
        lambda x: torch.logsumexp(x, 1),
        {"online": online_log_sum_exp, "split": lambda x: x.view(len(x), 8, -1).logsumexp(2).logsumexp(1)},
    ),
    "scan": (
        matrix(),
        lambda x: x.cumsum(1),
        {"numpy": numpy_scan, "doubling": doubling_scan, "blocks": blocked_scan},
    ),
    "double_scan": (
        matrix(256, 256),
        lambda x: x.cumsum(0).cumsum(1),
        {
            "numpy": numpy_double_scan,
            "other_order": lambda x: x.cumsum(1).cumsum(0),
            "triangles": lambda x: torch.tril(torch.ones(len(x), len(x))) @ x @ torch.triu(torch.ones(256, 256)),
        },
    ),
    "convolution": (
        two((32, 1024), (32, 65)),
        direct_convolution,
        {"fft": fft_convolution, "unfolded": unfolded_convolution},
    ),
    "image_convolution": (
        two((2, 16, 18, 18), (16, 16, 3, 3)),
        F.conv2d,
        {"winograd": winograd, "unfolded": unfolded_image},
    ),
    "product": (
        two((64, 1024), (1024, 96)),
        torch.matmul,
        {"split_k": split_product, "outer_products": outer_products, "other_side": lambda x, w: (w.T @ x.T).T},
    ),
    "square_product": (two((128, 128), (128, 128)), torch.matmul, {"strassen": strassen}),
    "chain": (two((64, 64), (64, 64), (64, 8)), lambda x, y, z: (x @ y) @ z, {"other": lambda x, y, z: x @ (y @ z)}),
    "row_sums": (
        matrix(64, 4096),
        lambda x: x.sum(1),
        {
            "sequential": sequential_sum,
            "kahan": kahan_sum,
            "ones": lambda x: x @ torch.ones(x.shape[1]),
            "lanes": lanes,
        },
    ),
    "whole_sum": (
        matrix(1, 1 << 18),
        lambda x: x.sum(),
        {"lanes": lambda x: lanes(x)[0], "wide": lambda x: x.double().sum().float()},
    ),
    "mean_square": (
        two((64, 2048), (64, 2048)),
        F.mse_loss,
        {"lanes": lambda x, y: lanes((x - y).square().view(1, -1))[0] / x.numel()},
    ),
    "divergence": (
        two((64, 1024), (64, 1024)),
        divergence,
        {"logs": divergence_by_logs, "entropies": divergence_by_entropies, "compiled": torch.compile(divergence)},
    ),
    "attention": (
        two((64, 64), (128, 64), (128, 64)),
        eager_attention,
        {
            "blocks_of_keys": flash,
            "library": lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
            "scaled_query": lambda q, k, v: torch.softmax((q * 0.125) @ k.T, 1) @ v,
        },
    ),
    "gelu": (
        matrix(),
        gelu,
        {
            "erf": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
            "erfc": lambda x: 0.5 * x * torch.erfc(-x / math.sqrt(2)),
        },
    ),
    "gelu_tanh": (
        matrix(),
        gelu_tanh,
        {
            "library": lambda x: F.gelu(x, approximate="tanh"),
            "sigmoid": lambda x: x * torch.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x)),
        },
    ),
    "silu": (matrix(), F.silu, {"quotient": lambda x: x / (1 + (-x).exp()), "product": lambda x: x * x.sigmoid()}),
    "softplus": (matrix(), F.softplus, {"logaddexp": lambda x: torch.logaddexp(x, torch.zeros(()))}),
    "layer_norm": (
        matrix(),
        layer_norm,
        {
            "moments": lambda x: normalised(x, *moments(x)),
            "merged": lambda x: normalised(x, *merged_moments(x)),
            "quotient": lambda x: (
                (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
            ),
        },
    ),
    "group_norm": (matrix(), group_norm, {"parts": group_norm_by_parts}),
    "rms_norm": (
        matrix(),
        lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6),
        {
            "library": lambda x: F.rms_norm(x, x.shape[1:], eps=1e-6),
            "norm": lambda x: x / (x.norm(dim=1, keepdim=True).square() / x.shape[1] + 1e-6).sqrt(),
        },
    ),
    "cross_entropy": (
        labelled,
        F.cross_entropy,
        {"picked": picked, "one_hot": one_hot_loss, "online": online_loss},
    ),
    "binary_cross_entropy": (
        two((64, 512), (64, 512)),
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        {
            "log_sigmoids": lambda x, y: -(y.sigmoid() * F.logsigmoid(x) + (-y).sigmoid() * F.logsigmoid(-x)).mean(),
            "softplus": lambda x, y: (F.softplus(x) - x * y.sigmoid()).mean(),
        },
    ),
    "cosine_similarity": (
        two((64, 256), (64, 256)),
        cosine,
        {
            "after": lambda x, y: (
                (x @ y.T) / (x.norm(dim=1, keepdim=True).clamp_min(1e-12) * y.norm(dim=1).clamp_min(1e-12))
            )
        },
    ),
    "recurrence": (two((64, 256), (64, 256)), recurrence, {"doubling": recurrence_by_doubling}),
    "rotation": (two((64, 256), (64, 256)), rotated, {"complex": rotated_as_complex}),
    "transform": (matrix(64, 256), torch.fft.fft, {"product": dft}),
}
