"""What the verifier knows of one process triple and of its rounds: secrets that no worker sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.harness.distribution import Draws
from aisp_mcp.harness.oracle import Truth
from aisp_mcp.harness.rng import CallRng, Pools


@dataclass
class Turn:
    """One filled round of one side: enough to make its inputs again. staged: they, and its outputs, may lie elsewhere
    than in the side's arena.
    """

    side: int
    seed: int
    mode: str
    count: int
    staged: bool = False


@dataclass
class Bank:
    """The secrets of one process triple: its pools, and the truth for its static tensors.

    There are two, so that two triples can start side by side. judged: workers whose output on plain inputs was compared
    with the reference. near: whether outputs have been so close to the baseline's, so far, that they need no reference.
    known: the truth of one call, which all three workers are asked for.
    """

    pools: Pools
    truth: Truth
    judged: set[int] = field(default_factory=set)
    near: bool = True
    known: tuple[tuple[int, str], tuple[Any, Any]] | None = None
    draws: dict[int, Draws] = field(default_factory=dict)

    def inputs(self, seed: int, mode: str) -> dict[str, Any]:
        return dict(self.truth.spec.inputs(CallRng(self.pools, seed, mode)))

    def both(self, seed: int, mode: str, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """(baseline's output, reference) of a call with these inputs, which are used up."""
        if self.known is None or self.known[0] != (seed, mode):
            self.known = None  # before more memory is needed
            self.known = (seed, mode), self.truth.both(inputs)
        return self.known[1]

    def forget(self) -> None:
        """The last truth: a round with other inputs follows."""
        self.known = None
