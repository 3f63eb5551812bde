"""The way in which a comparison is measured: a table from its place and kind to strategy, sequence and preset.

It is decided once, when the specification has been opened. Before that, only the place is known: a CPU, a GPU, or
several ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from aisp_mcp.judge.parent.timing.cold import ColdRun
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy
from aisp_mcp.judge.parent.timing.energy import EnergyRun
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.parent.timing.ranks import RankStrategy
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.parent.timing.serving import ServingRun
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.messages import OpenAnswer

Place = Literal["cpu", "cuda", "ranks"]
STRATEGIES: dict[Place, type[Strategy]] = {"cpu": CpuStrategy, "cuda": GpuStrategy, "ranks": RankStrategy}
# Of one replicate, by the benchmark's goal, or its kind; the others time calls.
SEQUENCES: dict[str, type[ReplicateRun]] = {"cold": ColdRun, "energy": EnergyRun, "serving": ServingRun}

# A cold start yields one number per process, a timed replicate the median of rounds: so two and a half times as many
# replicates, and a multiple of three, so that each role has each position equally often.
COLD_REPLICATES, COLD_MULTIPLE = 2.4, 3
RANKS_ROUND_S = 0.02  # rounds begin and end on several processes, so they are longer


@dataclass(frozen=True)
class Method:
    """strategy: the steps that differ between places. sequence: of one replicate. preset: adapted to both."""

    strategy: Strategy
    sequence: type[ReplicateRun]
    preset: Preset


def chosen(place: Place, opened: OpenAnswer, preset: Preset, least_round_s: float = 0.0) -> Method:
    """The method for an opened specification. least_round_s: length of a round that several nodes need."""
    kind = "serving" if "serving" in opened else opened["goal"]
    # An engine runs its own rounds on any device: there are no calls to prepare or trace.
    strategy = STRATEGIES["cpu" if kind == "serving" else place]()
    return Method(strategy, SEQUENCES.get(kind, ReplicateRun), adapted(preset, place, kind, least_round_s))


def adapted(preset: Preset, place: Place, kind: str = "speed", least_round_s: float = 0.0) -> Preset:
    """The preset for this place and kind."""
    if place == "cuda":
        preset = preset.for_gpu()
    elif place == "ranks":
        preset = replace(preset, round_s=max(RANKS_ROUND_S, least_round_s))
    if kind == "cold":
        looks = tuple(map(_cold_replicates, preset.looks))
        preset = replace(preset, replicates=_cold_replicates(preset.replicates), looks=looks)
    return preset


def _cold_replicates(usual: int) -> int:
    return COLD_MULTIPLE * math.ceil(COLD_REPLICATES * usual / COLD_MULTIPLE)
