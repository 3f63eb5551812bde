"""Operations of known intensity, to place under the roofline."""

from __future__ import annotations

from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, bursts

_INNER = (1, 8, 32, 128, 512)


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, size (edge n), dtype, rounds, budget_s. Points: name, flops, bytes of one call, FLOP/s samples.

    n x n x k products with small k, and an addition: bytes are the minimum that must move (each operand once).
    """
    import torch

    device, n = params["device"], params["size"]
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(params["dtype"], torch.float32)
    width = torch.empty(0, dtype=kind).element_size()
    works, sizes = [], {}
    for k in _INNER:
        a, b = torch.randn(n, k, device=device, dtype=kind), torch.randn(k, n, device=device, dtype=kind)
        out = torch.empty(n, n, device=device, dtype=kind)
        name = f"matmul {n}x{n}x{k}"
        flops = 2.0 * n * n * k
        sizes[name] = (flops, float(width * (2 * n * k + n * n)))
        works.append(TimedWork(name, flops, _product(torch, a, b, out)))
    x, y, z = (torch.randn(n * n, device=device, dtype=kind) for _ in range(3))
    sizes["add"] = (float(n * n), float(3 * width * n * n))
    works.append(TimedWork("add", float(n * n), lambda: torch.add(x, y, out=z)))
    samples = bursts(works, Clock(torch, device), params)
    points = [
        {"name": w.name, "flops": sizes[w.name][0], "bytes": sizes[w.name][1], "samples": samples[w.name]}
        for w in works
    ]
    return {"points": points, "dtype": params["dtype"]}


def _product(torch: Any, a: Any, b: Any, out: Any) -> Any:
    return lambda: torch.mm(a, b, out=out)
