"""What the verifier knows of one process triple and of its rounds: secrets that no worker sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.harness.distribution import Draws
from aisp_mcp.harness.oracle import Truth
from aisp_mcp.harness.rng import CallRng, Pools


@dataclass
class Turn:
    """One filled round of one side: enough to make its inputs again."""

    side: int
    seed: int
    mode: str
    count: int


@dataclass
class Bank:
    """The secrets of one process triple: its pools, and the truth for its static tensors.

    There are two, so that two triples can start side by side. judged: workers whose output on plain inputs was compared
    with the reference. near: whether outputs have been so close to the baseline's, so far, that they need no reference.
    """

    pools: Pools
    truth: Truth
    judged: set[int] = field(default_factory=set)
    near: bool = True
    draws: dict[int, Draws] = field(default_factory=dict)

    def inputs(self, seed: int, mode: str) -> dict[str, Any]:
        return dict(self.truth.spec.inputs(CallRng(self.pools, seed, mode)))
