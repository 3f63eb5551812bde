"""Training steps of a synthetic decoder-only transformer: peak memory and time per step, to compare with a prediction.

The model has the memory behaviour of Llama-style layers (pre-norm, grouped-query attention through
scaled_dot_product_attention, SwiGLU, untied output head), with layer norm without bias in place of RMS norm, because it
is one kernel on every device. The optimizer is fused AdamW, which needs no temporaries.
"""

from __future__ import annotations

import time
from typing import Any

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq, batch, dtype, checkpoint, steps.

    Returns peak_bytes (bytes of live tensors at the worst moment: the CUDA allocator's own figure, or the sum of the
    profiler's allocation events on a CPU), parameters, and seconds of each step after the first. Steps are timed in a
    second pass, without the profiler.
    """
    import torch
    import torch.utils.checkpoint

    torch.manual_seed(1)
    peak, count = _peak(torch, params)
    return {
        "peak_bytes": peak,
        "parameters": count,
        "seconds": _times(torch, params),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _peak(torch: Any, params: dict[str, Any]) -> tuple[int, int]:
    """(peak bytes, parameters) of all steps, construction included."""
    if params["device"] != "cpu":
        torch.cuda.reset_peak_memory_stats()
        run = _Run(torch, params)
        for _ in range(params["steps"]):
            run.step()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()), run.count
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run = _Run(torch, params)
        for _ in range(params["steps"]):
            run.step()
    return _host_peak(profiler), run.count


def _host_peak(profiler: Any) -> int:
    """Highest running sum of the CPU allocator's events, in bytes."""
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda item: item.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def _times(torch: Any, params: dict[str, Any]) -> list[float]:
    """Seconds per step; the first, which allocates the optimizer's state, is left out."""
    run = _Run(torch, params)
    seconds = []
    for _ in range(params["steps"]):
        if params["device"] != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run.step()
        if params["device"] != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


class _Run:
    """A model, its optimizer and one batch of random tokens."""

    def __init__(self, torch: Any, params: dict[str, Any]) -> None:
        self.torch = torch
        self.checkpoint = bool(params["checkpoint"])
        where = {"device": params["device"], "dtype": getattr(torch, DTYPES[params["dtype"]])}
        nn, hidden, vocab = torch.nn, params["hidden"], params["vocab"]
        self.embed = nn.Embedding(vocab, hidden, **where)
        self.layers = nn.ModuleList(_layer(torch, params, where) for _ in range(params["layers"]))
        self.norm = nn.LayerNorm(hidden, bias=False, **where)
        self.head = nn.Linear(hidden, vocab, bias=False, **where)
        every = [*self.embed.parameters(), *self.layers.parameters(), *self.norm.parameters(), *self.head.parameters()]
        self.count = sum(item.numel() for item in every)
        self.optimizer = torch.optim.AdamW(every, lr=1e-4, fused=True)
        shape = (params["batch"], params["seq"])
        self.tokens = torch.randint(0, vocab, shape, device=params["device"])
        self.targets = torch.randint(0, vocab, (shape[0] * shape[1],), device=params["device"])

    def step(self) -> None:
        """Forward, backward, update."""
        functional, recompute = self.torch.nn.functional, self.torch.utils.checkpoint.checkpoint
        x = self.embed(self.tokens)
        for layer in self.layers:
            x = recompute(layer, x, use_reentrant=False) if self.checkpoint else layer(x)
        x = self.head(self.norm(x))
        x = functional.cross_entropy(x.float().flatten(0, 1), self.targets)
        x.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _layer(torch: Any, params: dict[str, Any], where: dict[str, Any]) -> Any:
    nn, functional = torch.nn, torch.nn.functional
    hidden, ffn, width = params["hidden"], params["ffn"], params["head_dim"]
    heads, kv_heads = params["heads"], params["kv_heads"]

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(hidden, bias=False, **where) for _ in range(2))
            self.q = nn.Linear(hidden, heads * width, bias=False, **where)
            self.k = nn.Linear(hidden, kv_heads * width, bias=False, **where)
            self.v = nn.Linear(hidden, kv_heads * width, bias=False, **where)
            self.o = nn.Linear(heads * width, hidden, bias=False, **where)
            self.gate = nn.Linear(hidden, ffn, bias=False, **where)
            self.up = nn.Linear(hidden, ffn, bias=False, **where)
            self.down = nn.Linear(ffn, hidden, bias=False, **where)

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norms[0](x))
            y = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

        def attend(self, y: Any) -> Any:
            batch, seq, _ = y.shape
            q = self.q(y).view(batch, seq, heads, width).transpose(1, 2)
            k = self.k(y).view(batch, seq, kv_heads, width).transpose(1, 2)
            v = self.v(y).view(batch, seq, kv_heads, width).transpose(1, 2)
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            return self.o(out.transpose(1, 2).reshape(batch, seq, heads * width))

    return Layer()
