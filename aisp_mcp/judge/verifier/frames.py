"""The memory layout of rounds: how many calls fit, and the memory that each needs."""

from __future__ import annotations

from typing import Any

from aisp_mcp.bench import Host
from aisp_mcp.judge.protocol.layout import Layout, capacity_for
from aisp_mcp.judge.protocol.module_loader import contract, flatten
from aisp_mcp.judge.verifier.inputs import files
from aisp_mcp.judge.verifier.inputs.bank import InputBank

ENERGY_ROUND_S = 0.03  # a sixteenth of the longest round, because energy counters move in steps

# Of the free memory, taken by static tensors: seven processes hold them, for two replicates at a time, and the verifier
# also in float64.
LARGE_STATIC = 1 / 64


def layout_of(
    bank: InputBank, inputs: dict[str, Any], output: Any, seconds: float, budget: int, round_s: float
) -> Layout:
    """The layout of a comparison's rounds. seconds: of one call; budget: bytes for all calls of a round."""
    goal = bank.reference.spec.goal
    groups = (
        tuple(contract(name, tensor) for name, tensor in bank.reference.params.items()),
        tuple(contract(name, Host(tensor) if name in bank.host else tensor) for name, tensor in inputs.items()),
        tuple(contract(name, tensor) for name, tensor in flatten(output)),
    )
    free = 0
    if bank.device == "cuda":
        import torch

        free = int(torch.cuda.mem_get_info()[0])
        budget = min(budget, free // 24)
    elif goal == "memory":
        budget = 0  # one call per round: frames for more would waste memory
    round_s = ENERGY_ROUND_S if goal == "energy" else round_s
    single = Layout(*groups, capacity=1)
    most = files.calls_per_round(inputs, min(4096, max(2, int(16 * round_s / max(seconds, 1e-9)))))
    frame = single.frame + files.bytes_of_call(inputs)
    tight = bank.device == "cuda" and goal != "cold" and single.params_bytes + frame > budget
    capacity = capacity_for(single.params_bytes, frame, budget, most)
    is_large = bank.device == "cuda" and single.params_bytes > LARGE_STATIC * free
    return Layout(*groups, capacity=capacity, tight=tight, replicates=1 if tight or is_large else 2)
