"""Replay of a program of many small operations as a CUDA graph.

A reference in Python loops launches thousands of kernels that take a GPU a few microseconds each, and the host many
times as long. It is evaluated for every call that is compared, always on tensors of the same shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from aisp_mcp.errors import AispError
from aisp_mcp.judge.protocol.module_loader import flatten, mapped
from aisp_mcp.judge.verifier.checks.tolerance import components

SLOW_S = 0.1  # of the host, per call; a capture takes as long as a call, and half a second more
MOST_BYTES = 1 << 30  # of the tensors, because a graph keeps them and all intermediate results
AGREES = 1e-9  # of the largest element


class Replayed:
    """A function of named tensors. If the host is slow to launch its kernels, the second call captures them, and later
    calls replay them, provided that a replay gives the result of that call.

    A function that waits for the device is called as it is. Do not use one that changes its tensors, or whose result
    depends on anything else. copies: its calls return the same memory again, so each result is copied.
    """

    copies = False

    def __init__(self, function: Callable[[dict[str, Any]], Any], may_replay: bool) -> None:
        self._program, self._may_replay = function, may_replay
        self._was_slow = False
        self._graph: Any = None
        self._given: dict[str, Any] = {}
        self._result: Any = None

    def __call__(self, tensors: dict[str, Any]) -> Any:
        """The function's result."""
        if not self._may_replay or not all(getattr(tensor, "is_cuda", False) for tensor in tensors.values()):
            return self._function(tensors)
        if sum(tensor.nbytes for tensor in tensors.values()) > MOST_BYTES:
            return self._function(tensors)
        if self._graph is not None:
            return self._replay(tensors)
        if self._was_slow:
            return self._captured(tensors)
        begin = time.perf_counter()
        result = self._function(tensors)
        self._was_slow = time.perf_counter() - begin > SLOW_S
        return result

    def _function(self, tensors: dict[str, Any]) -> Any:
        result = self._program(tensors)
        return clones(result) if self.copies else result

    def _captured(self, tensors: dict[str, Any]) -> Any:
        """Capture the function's kernels and call it once more; keep the graph if both give the same result."""
        graph = self._capture(tensors)
        result = self._function(tensors)
        self._may_replay = graph is not None and self._agrees(graph, result)
        if self._may_replay:
            self._graph = graph
        else:
            self._given, self._result = {}, None
        return result

    def _capture(self, tensors: dict[str, Any]) -> Any:
        import torch

        self._given = {name: tensor.clone() for name, tensor in tensors.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._result = self._function(dict(self._given))
        except (RuntimeError, AispError):  # it waits for the device, or memory is short
            torch.cuda.synchronize()
            return None
        return graph

    def _agrees(self, graph: Any, result: Any) -> bool:
        """Return True if a replay on the tensors of the capture gives that result."""
        graph.replay()
        pairs = zip(flatten(self._result), flatten(result), strict=True)
        return all(_are_same(one, other) for (_, one), (_, other) in pairs)

    def _replay(self, tensors: dict[str, Any]) -> Any:
        for name, tensor in self._given.items():
            tensor.copy_(tensors[name])
        self._graph.replay()
        return clones(self._result)


def clones(output: Any) -> Any:
    """The same structure of tensors in new memory; strides with gaps become contiguous ones."""
    return mapped(output, lambda tensor: tensor.clone())


def _are_same(one: Any, other: Any) -> bool:
    import torch

    if one.dtype != other.dtype or not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return bool(one.dtype == other.dtype and torch.equal(one, other))
    one, other = components(one).double(), components(other).double()
    size = float(other.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    return bool(torch.allclose(one, other, rtol=0.0, atol=AGREES * size, equal_nan=True))
