"""The code in a serving candidate's process: load it, serve one trace per round, write its tokens into the ring.

Nothing it reports is trusted: the parent stamps tokens when it sees them, and the verifier compares them. The protocol
on the pipes is that of candidate/main.py; a round is always one trace.
"""

from __future__ import annotations

import gc
import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Request
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.module_loader import load_candidate, load_spec
from aisp_mcp.judge.protocol.shared_memory import ControlBlock, attach
from aisp_mcp.judge.protocol.token_ring import TokenRing

NAP_S = 0.0001  # between polls of the feed by an idle engine


class Feed:
    """The requests of one trace as an engine gets them (see aisp_mcp.bench.RequestFeed)."""

    def __init__(self, ring: TokenRing) -> None:
        self._ring, self._seen = ring, 0

    def poll(self) -> list[Request]:
        """Return the requests that arrived since the last call."""
        requests = self._ring.arrivals(self._seen)
        self._seen += len(requests)
        return requests

    def wait(self) -> list[Request]:
        """The same, but wait until there is one or the trace has ended."""
        while not (requests := self.poll()):
            if self.closed:
                return self.poll()
            time.sleep(NAP_S)
        return requests

    @property
    def closed(self) -> bool:
        """True if poll() returns the last requests now."""
        return self._ring.closed


class ServingWorker:
    """A baseline or candidate engine in its own process."""

    def __init__(self, setup: dict[str, Any], control_fd: int, arena_fd: int) -> None:
        import torch

        self.torch, self.cuda = torch, setup["device"] == "cuda"
        torch.set_num_threads(setup["threads"])
        layout = Layout.from_json(setup["layout"])
        self.ring = TokenRing(ControlBlock(control_fd, layout))
        self.arena = attach(setup, layout, arena_fd)
        self.serve, self.params = entry(setup, self.arena.params())

    def round(self, _: int) -> None:
        """Serve one trace with the garbage collector disabled."""
        emit = self.ring.emit
        gc.collect(0)
        gc.disable()
        try:
            with self.torch.inference_mode():
                self.serve(Feed(self.ring), lambda request, token: emit(request, operator.index(token)), **self.params)
            if self.cuda:
                self.torch.cuda.synchronize()
        finally:
            gc.enable()


def entry(setup: dict[str, Any], params: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The engine's serve function, and the static tensors that it takes by name."""
    path = Path(setup["path"])
    if setup["baseline"]:
        return load_spec(path, setup["size"]).serve, params  # type: ignore[attr-defined]
    module = load_candidate(path, Path(setup["common"]))
    prepare = getattr(module, "prepare", None)
    return module.serve, dict(prepare(params, {})) if prepare else params
