"""Record what the planners are checked against: GEMM times over shapes, and peaks of the synthetic transformer.

    python validation/run_planners.py [--out FILE] [--cpu]

Prints one JSON document. --cpu records the twelve small configurations of the transformer on the CPU and no GEMM.
Random data; the L2 cache is cleared before each timed call (triton.testing.do_bench); medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
sys.path[:0] = [ROOT, str(Path(__file__).parent)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))

import scrub  # noqa: E402

SQUARES = (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
# (n, k) of projections of public models: attention, gate/up, down, head of 8B to 405B models.
WEIGHTS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192), (57344, 8192),
           (8192, 28672), (128256, 4096), (2048, 1408), (7168, 2048))  # fmt: skip
ROWS = (1, 16, 64, 256, 1024, 4096)
NAMES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq", "batch", "dtype", "checkpoint")
ON_CPU = (
    (4, 256, 8, 8, 32, 688, 4000, 512, 2, "fp32", False),
    (4, 256, 8, 2, 32, 688, 4000, 512, 2, "fp32", False),
    (4, 256, 8, 2, 32, 688, 4000, 512, 2, "fp32", True),
    (8, 256, 8, 8, 32, 688, 1000, 512, 2, "fp32", False),
    (8, 256, 8, 8, 32, 688, 1000, 512, 2, "fp32", True),
    (2, 512, 8, 2, 64, 1408, 8000, 256, 4, "fp32", False),
    (2, 512, 8, 2, 64, 1408, 8000, 256, 4, "bf16", False),
    (2, 512, 8, 8, 64, 1408, 2000, 1024, 1, "bf16", False),
    (6, 384, 6, 6, 64, 1024, 2000, 256, 1, "fp32", False),
    (6, 384, 6, 2, 64, 1024, 2000, 128, 8, "bf16", False),
    (2, 1024, 16, 4, 64, 2816, 16000, 64, 1, "fp32", False),
    (3, 256, 4, 4, 64, 1024, 500, 1024, 2, "fp32", False),
)
ON_GPU = (
    (4, 4096, 32, 8, 128, 14336, 32000, 2048, 1, "bf16", False),
    (4, 4096, 32, 8, 128, 14336, 32000, 2048, 1, "bf16", True),
    (4, 4096, 32, 8, 128, 14336, 128256, 4096, 1, "bf16", False),
    (8, 4096, 32, 8, 128, 14336, 128256, 4096, 2, "bf16", False),
    (8, 4096, 32, 8, 128, 14336, 128256, 4096, 2, "bf16", True),
    (16, 2048, 16, 16, 128, 5632, 32000, 2048, 4, "bf16", False),
    (16, 2048, 16, 16, 128, 5632, 32000, 2048, 4, "bf16", True),
    (12, 768, 12, 12, 64, 2048, 50304, 1024, 16, "bf16", False),
    (12, 768, 12, 12, 64, 2048, 50304, 1024, 8, "fp32", False),
    (2, 8192, 64, 8, 128, 28672, 32000, 4096, 1, "bf16", False),
    (24, 1024, 16, 4, 64, 4096, 32000, 8192, 1, "bf16", False),
    (8, 2048, 32, 8, 64, 8192, 128256, 512, 4, "fp32", True),
)


def gemms() -> list[dict[str, Any]]:
    """Seconds per product over dtypes and shapes."""
    import torch
    from triton.testing import do_bench

    torch.manual_seed(1)
    shapes = [(n, n, n) for n in SQUARES]
    shapes += [(m, n, k) for (n, k), m in itertools.product(WEIGHTS, ROWS)]
    rows = []
    for dtype, (m, n, k) in itertools.product(("bf16", "fp8"), shapes):
        a, b = (torch.randn(x, y, device="cuda", dtype=torch.bfloat16) for x, y in ((m, k), (n, k)))
        if dtype == "bf16":
            call = lambda a=a, b=b: a @ b.t()  # noqa: E731
        else:
            scale = torch.ones((), device="cuda")
            a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            call = lambda a=a, b=b, scale=scale: torch._scaled_mm(  # noqa: E731
                a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        try:
            milliseconds = do_bench(call, warmup=10, rep=40, return_mode="median")
        except RuntimeError as error:
            print(f"{dtype} {m} {n} {k}: {str(error)[:120]}", file=sys.stderr)
            continue
        rows.append({"dtype": dtype, "m": m, "n": n, "k": k, "seconds": milliseconds / 1e3})
    return rows


DECODERS = (
    (32, 4096, 32, 8, 128, 14336, 128256),
    (16, 8192, 64, 8, 128, 28672, 128256),
    (32, 4096, 32, 32, 128, 11008, 32000),
)
MOST_CACHE_BYTES = 50e9


def decoder(torch: Any, shape: tuple[int, ...]) -> Any:
    """forward(x, cache): one pass of a bf16 decoder; cache: keys and values per layer, None for a prefill."""
    layers, hidden, heads, kv, width, ffn, vocab = shape

    def random(*size: int) -> Any:
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16) * 0.02

    sizes = ((hidden, (heads + 2 * kv) * width), (heads * width, hidden), (hidden, 2 * ffn), (ffn, hidden), (hidden,))
    weights = [[random(*size) for size in sizes] for _ in range(layers)]
    head, functional = random(hidden, vocab), torch.nn.functional

    def forward(x: Any, cache: Any) -> Any:
        batch, tokens, _ = x.shape
        for at, (qkv, out, gate_up, down, scale) in enumerate(weights):
            parts = (functional.rms_norm(x, (hidden,), scale) @ qkv).split([heads * width, kv * width, kv * width], -1)
            q, k, v = (p.view(batch, tokens, -1, width).transpose(1, 2) for p in parts)
            if cache is not None:
                k, v = cache[at]
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=heads != kv)
            x = x + y.transpose(1, 2).reshape(batch, tokens, heads * width) @ out
            gate, up = (functional.rms_norm(x, (hidden,), scale) @ gate_up).chunk(2, -1)
            x = x + (functional.silu(gate) * up) @ down
        return x[:, -1] @ head

    return forward


def passes() -> list[dict[str, Any]]:
    """Seconds of decode and prefill passes, each replayed as a CUDA graph."""
    import torch
    from triton.testing import do_bench_cudagraph

    rows = []
    for shape in DECODERS:
        forward, named = decoder(torch, shape), dict(zip(NAMES[:7], shape, strict=True))
        cases = [("decode", batch, tokens) for batch in (1, 8, 32, 128) for tokens in (512, 1152, 4096)]
        for phase, batch, tokens in [*cases, *(("prefill", 1, tokens) for tokens in (256, 1024, 4096, 8192))]:
            layers, kv, width = shape[0], shape[3], shape[4]
            if phase == "decode" and 4.0 * batch * tokens * layers * kv * width > MOST_CACHE_BYTES:
                continue
            like = {"device": "cuda", "dtype": torch.bfloat16}
            size = (2, batch, kv, tokens, width)
            cache = [torch.randn(*size, **like).unbind(0) for _ in range(layers)] if phase == "decode" else None
            x = torch.randn(batch, 1 if phase == "decode" else tokens, shape[1], **like)
            with torch.no_grad():
                seconds = do_bench_cudagraph(lambda f=forward, x=x, c=cache: f(x, c), return_mode="median") / 1e3
            rows.append({"phase": phase, **named, "batch": batch, "tokens": tokens, "seconds": seconds})
            del cache
    return rows


def transformers(device: str, rows: tuple[tuple[Any, ...], ...]) -> list[dict[str, Any]]:
    """The probe's answer per configuration, each in a process of its own."""
    from aisp_mcp.machine.probes import probe_runner

    table = []
    for row in rows:
        params = {"device": device, "steps": 3, **dict(zip(NAMES, row, strict=True))}
        table.append({"params": params, **probe_runner.ask("transformer", params, 300)})
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    from aisp_mcp.system import manifest

    document: dict[str, Any] = {
        "what": "peaks of the synthetic transformer, and GEMM times on a GPU (validation/run_planners.py)",
        "date": time.strftime("%Y-%m-%d"),
        "environment": manifest.manifest(),
    }
    document["transformer"] = transformers("cpu", ON_CPU) if options.cpu else transformers("cuda:0", ON_GPU)
    if not options.cpu:
        document["gemm"] = gemms()
        document["passes"] = passes()
    text = scrub.text(document)
    if options.out:
        Path(options.out).write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
