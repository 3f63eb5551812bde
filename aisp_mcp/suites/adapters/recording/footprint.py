"""The size of a problem before any of it is made: its recipe, run on torch's device for shapes without data."""

from __future__ import annotations

import os
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.loading import flatten
from aisp_mcp.suites.adapters import runtime

# Each of the three workers, the verifier and the arena hold the tensors; the verifier holds them in float64 as well.
COPIES, WIDE_BYTES = 4, 8
META = "meta"


def require_room(reference: runtime.Reference, device: str) -> None:
    """Refuse a problem that cannot fit into the memory that is free. Raises BenchmarkError TOO_LARGE.

    A recipe that does not work without data is left to fail where it runs.
    """
    tensors = shapes(reference)
    if tensors is None:
        return
    own = sum(tensor.nbytes for tensor in tensors.values())
    needed = COPIES * own + WIDE_BYTES * sum(tensor.numel() for tensor in tensors.values())
    free = _free_bytes(device)
    if needed > free:
        name, largest = max(tensors.items(), key=lambda item: item[1].nbytes)
        raise BenchmarkError(
            "TOO_LARGE",
            f"Inputs, parameters and outputs take {own / 2**30:.1f} GiB, the largest of them {name} with the shape "
            f"{tuple(largest.shape)}; a comparison needs about {needed / 2**30:.0f} GiB, and "
            f"{free / 2**30:.0f} GiB are free.",
            "Set smaller sizes: --set of bench adapt and bench verify, --size of bench run.",
        )


def shapes(reference: runtime.Reference) -> dict[str, Any] | None:
    """Tensors without data: inputs, static tensors and outputs, by name. None where the recipe needs data."""
    import torch

    tensors: dict[str, Any] = {}
    try:
        with runtime.seeded(0), torch.device(META):
            arguments = reference.named(reference.draw(), tensors)
            static = reference.state()
    except Exception:  # of the user's code, which may do anything with its data
        return None
    if any(tensor.device.type != META for tensor in (*tensors.values(), *static.values())):
        return None
    before, reference.arguments = reference.arguments, arguments
    try:
        outputs = dict(flatten(reference.run(**tensors, **static)))
        return {**tensors, **static, **{name: one for name, one in outputs.items() if isinstance(one, torch.Tensor)}}
    except Exception:  # an operation that has no shape without data
        return {**tensors, **static}
    finally:
        reference.arguments = before


def _free_bytes(device: str) -> int:
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
