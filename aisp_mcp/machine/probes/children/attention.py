"""Scaled dot-product attention, forward: rate through the fastest of torch's backends, with random data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, best, rested

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, batch, heads, sequence, head_dim, dtype, rounds, budget_s. Samples in FLOP/s.

    FLOPs: 4 B H S^2 D (two products; multiply and add count separately); the causal case counts half.
    """
    import torch

    device = params["device"]
    shape = (params["batch"], params["heads"], params["sequence"], params["head_dim"])
    kind = torch.bfloat16 if params["dtype"] == "bf16" else torch.float32
    q, k, v = (torch.randn(shape, device=device, dtype=kind) for _ in range(3))
    b, h, s, d = shape
    full = 4.0 * b * h * s * s * d
    clock = Clock(torch, device)
    with torch.no_grad():
        works = [
            best(_ways(torch, "sdpa_full", full, (q, k, v), causal=False), clock),
            best(_ways(torch, "sdpa_causal", full / 2, (q, k, v), causal=True), clock),
        ]
        samples, sustained = rested(works, clock, params)
    return {
        "samples": samples,
        "sustained": sustained,
        "paths": {work.name: work.note for work in works},
        "shape": {"batch": b, "heads": h, "sequence": s, "head_dim": d},
        "dtype": params["dtype"],
    }


def _ways(torch: Any, name: str, flops: float, qkv: tuple[Any, Any, Any], causal: bool) -> list[TimedWork]:
    """The backend that torch chooses and, on a GPU, each by name; `best` leaves out those this build or card lacks."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attend = torch.nn.functional.scaled_dot_product_attention
    ways = [TimedWork(name, flops, lambda: attend(*qkv, is_causal=causal), "torch's choice of backend")]

    def through(backend: Any) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(backend):
                return attend(*qkv, is_causal=causal)

        return call

    named = [(backend, getattr(SDPBackend, backend)) for backend in _BACKENDS] if qkv[0].is_cuda else []
    return ways + [TimedWork(name, flops, through(backend), f"SDPBackend.{title}") for title, backend in named]
