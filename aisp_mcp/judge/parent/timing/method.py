"""The way in which a comparison is measured: a table from its place and kind to strategy, sequence and preset.

It is decided once, when the specification has been opened. Before that, only the place is known: a CPU, a GPU, or
several ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.judge.parent.timing.cold import ColdRun
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy
from aisp_mcp.judge.parent.timing.energy import EnergyRun
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.parent.timing.ranks import RankStrategy
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.parent.timing.serving import ServingRun
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.presets import Place, Preset, for_kind
from aisp_mcp.judge.protocol.messages import OpenAnswer

STRATEGIES: dict[Place, type[Strategy]] = {"cpu": CpuStrategy, "cuda": GpuStrategy, "ranks": RankStrategy}
# Of one replicate, by the benchmark's goal, or its kind; the others time calls.
SEQUENCES: dict[str, type[ReplicateRun]] = {"cold": ColdRun, "energy": EnergyRun, "serving": ServingRun}


@dataclass(frozen=True)
class Method:
    """strategy: the steps that differ between places. sequence: of one replicate. preset: adapted to both."""

    strategy: Strategy
    sequence: type[ReplicateRun]
    preset: Preset


def chosen(place: Place, opened: OpenAnswer, preset: Preset, round_trips_s: Sequence[float] = ()) -> Method:
    """The method for an opened specification. round_trips_s: to each other node."""
    kind = "serving" if "serving" in opened else opened["goal"]
    # An engine runs its own rounds on any device: there are no calls to prepare or trace.
    strategy = STRATEGIES["cpu" if kind == "serving" else place]()
    adapted = for_kind(preset, place, kind, round_trips_s, opened["call_s"])
    return Method(strategy, SEQUENCES.get(kind, ReplicateRun), adapted)
