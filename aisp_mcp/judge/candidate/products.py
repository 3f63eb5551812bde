"""Libraries of matrix products, loaded before a program's first call."""

from __future__ import annotations

from contextlib import suppress

from aisp_mcp.judge.protocol.layout import Layout

TYPES = {"float32", "float16", "bfloat16"}  # whose libraries load at first use


def load(layout: Layout) -> None:
    """Load the library for the tensors' types while other processes prepare: in a first call it would take 65 ms. This
    runs after the program's import, whose settings apply to it, and on a separate stream, so that its workspace is not
    shared.
    """
    import torch

    types = {spec.dtype for spec in (*layout.params, *layout.inputs)} & TYPES
    with suppress(Exception), torch.cuda.stream(torch.cuda.Stream()):  # the program may have forbidden it
        for name in types:
            square = torch.zeros(16, 16, dtype=getattr(torch, name), device="cuda")
            square @ square
    torch.cuda.synchronize()
