"""Dense matrix rate per dtype on the fastest library path, with random data (zeros draw less power and inflate the
rate).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, best, rested

GPU_DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8", "fp32", "fp64")
CPU_DTYPES = ("fp32", "bf16", "fp64", "int8")
_CALLS = 20  # of a dtype, whatever the budget: choosing a path, warming up and the first round
_LEAST_SIZE = 256


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, dtypes, size (N of N x N x N), shrink (take smaller products where these do not fit into the
    budget), rounds, budget_s. Samples in FLOP/s (OP/s for int8).
    """
    import torch

    device, size = params["device"], params["size"]
    torch.manual_seed(params.get("seed", 0))
    clock = Clock(torch, device)
    limit_s = params["budget_s"] / (_CALLS * len(params["dtypes"])) if params.get("shrink") else math.inf
    chosen: list[TimedWork] = []
    sizes: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for dtype in params["dtypes"]:
        with _precision(torch, dtype):
            try:
                make = partial(candidates, torch, dtype, device=device)
                sizes[dtype] = affordable(make, _size(dtype, size), clock, limit_s)
                chosen.append(best(candidates(torch, dtype, sizes[dtype], device), clock))
            except (RuntimeError, AttributeError, TypeError) as error:
                skipped[dtype] = str(error)[:400]
    samples, sustained = rested([_precise(torch, w) for w in chosen], clock, params) if chosen else ({}, {})
    return {
        "samples": samples,
        "sustained": sustained,
        "paths": {work.name: work.note for work in chosen},
        "sizes": {work.name: sizes[work.name] for work in chosen},
        "skipped": skipped,
    }


def _size(dtype: str, size: int) -> int:
    """Half the edge for fp64, which is far slower on most devices, to keep its calls as short as the others'."""
    return size // 2 if dtype == "fp64" else size


def affordable(make: Callable[[int], list[TimedWork]], size: int, clock: Clock, limit_s: float) -> int:
    """The size, halved as often as needed for a call of the slowest path to take no longer than the limit: without
    instructions for a dtype, a CPU may need minutes. make: the paths for a size.
    """
    if math.isinf(limit_s):
        return size
    halved = (size >> times for times in range(size.bit_length()))
    *larger, chosen = [edge for edge in halved if edge >= _LEAST_SIZE] or [size]
    while larger and 8 * _slowest_s(make(chosen), clock) <= limit_s:
        chosen = larger.pop()
    return chosen


def _slowest_s(paths: list[TimedWork], clock: Clock) -> float:
    """Seconds of a call of the slowest path that works, after one that is not counted."""
    seconds = [0.0]
    for path in paths:
        with contextlib.suppress(Exception):  # best() leaves such a path out, too
            path.call()
            seconds.append(clock.seconds(path.call, 1))
    return max(seconds)


@contextlib.contextmanager
def _precision(torch: Any, dtype: str) -> Iterator[None]:
    """TF32 only if requested."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _precise(torch: Any, work: TimedWork) -> TimedWork:
    """Set the precision within the call, because rounds mix the dtypes; only fp32 and tf32 need it."""
    if work.name not in ("fp32", "tf32"):
        return work

    def call() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = work.name == "tf32"
        return work.call()

    return TimedWork(work.name, work.amount, call, work.note)


def candidates(torch: Any, dtype: str, n: int, device: str) -> list[TimedWork]:
    """Library paths for one dtype. amount = 2 n^3: multiply and add count separately."""
    if dtype == "fp8":
        return _fp8(torch, n, device)
    if dtype == "int8":
        return _int8(torch, n, device)
    return _plain(torch, dtype, n, device)


def _plain(torch: Any, dtype: str, n: int, device: str) -> list[TimedWork]:
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    kind = kinds.get(dtype, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
    out = torch.empty(n, n, device=device, dtype=kind)
    flops = 2.0 * n**3
    return [
        TimedWork(dtype, flops, lambda: torch.mm(a, b, out=out), "torch.mm row x row"),
        TimedWork(dtype, flops, lambda: torch.mm(a, b.t(), out=out), "torch.mm row x column"),
    ]


def _fp8(torch: Any, n: int, device: str) -> list[TimedWork]:
    """_scaled_mm wants the second operand column-major; per-tensor scales of one."""
    a, b = (torch.randn(n, n, device=device).clamp(-16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)

    def path(fast: bool) -> Callable[[], Any]:
        return lambda: torch._scaled_mm(
            a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    flops = 2.0 * n**3
    return [
        TimedWork("fp8", flops, path(True), "torch._scaled_mm e4m3, fast accumulation, bf16 out"),
        TimedWork("fp8", flops, path(False), "torch._scaled_mm e4m3, bf16 out"),
    ]


def _int8(torch: Any, n: int, device: str) -> list[TimedWork]:
    a, b = (torch.randint(-128, 128, (n, n), device=device, dtype=torch.int8) for _ in range(2))
    ops = 2.0 * n**3
    ways = [
        TimedWork("int8", ops, lambda: torch._int_mm(a, b.t()), "torch._int_mm row x column"),
        TimedWork("int8", ops, lambda: torch._int_mm(a, b), "torch._int_mm row x row"),
    ]
    if a.is_cuda:
        from aisp_mcp.machine.probes.children.triton_kernels import TILE, matmul

        if n % TILE == 0:
            out = torch.empty(n, n, device=device, dtype=torch.int32)
            ways += [
                TimedWork("int8", ops, lambda s=s: matmul(a, b, out, s), f"Triton row x column, {s} stages")  # type: ignore[misc]
                for s in (3, 4)
            ]
    return ways
