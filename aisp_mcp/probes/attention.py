"""Scaled dot-product attention, forward: rate through the backend torch chooses, with random data."""

from __future__ import annotations

from typing import Any

from aisp_mcp.probes.timing import Clock, Work, measure


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, batch, heads, sequence, head_dim, dtype, rounds, budget_s. Samples in FLOP/s.

    FLOPs: 4 B H S^2 D (two products, multiply and add counted apart); the causal case counts half.
    """
    import torch

    device = params["device"]
    shape = (params["batch"], params["heads"], params["sequence"], params["head_dim"])
    kind = torch.bfloat16 if params["dtype"] == "bf16" else torch.float32
    q, k, v = (torch.randn(shape, device=device, dtype=kind) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    b, h, s, d = shape
    full = 4.0 * b * h * s * s * d
    works = [
        Work("sdpa_full", full, lambda: attend(q, k, v)),
        Work("sdpa_causal", full / 2, lambda: attend(q, k, v, is_causal=True)),
    ]
    with torch.no_grad():
        samples = measure(works, Clock(torch, device), params["rounds"], params["budget_s"])
    return {
        "samples": samples,
        "shape": {"batch": b, "heads": h, "sequence": s, "head_dim": d},
        "dtype": params["dtype"],
    }
