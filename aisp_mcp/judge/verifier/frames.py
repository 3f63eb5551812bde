"""The memory layout of rounds: how many calls fit, and the memory that each needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aisp_mcp.bench import Host
from aisp_mcp.judge.protocol.device_turns import give_back
from aisp_mcp.judge.protocol.layout import Layout, capacity_for
from aisp_mcp.judge.protocol.module_loader import contract, flatten
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verifier.inputs import files
from aisp_mcp.judge.verifier.inputs.bank import InputBank, RoundInputs

ENERGY_ROUND_S = 0.03  # a sixteenth of the longest round, because energy counters move in steps; chosen
# Calls of a round, at most and at least, and times the usual round that its calls may take. Chosen: the layout only
# bounds rounds, whose lengths are found later.
MOST_CALLS, LEAST_CALLS, LONGEST = 4096, 2, 16
# Share of the free device memory that a round's calls may take. docs/decisions/0082-take-turns-with-gpu-memory.md.
SHARE_OF_DEVICE = 24
# Bytes of device memory that a process takes before it allocates anything: chosen for a CUDA context (commit 6f4ffbee).
CONTEXT_BYTES = 600 << 20
FILLED = 0.85  # share of the memory that an allocator can use; chosen: torch's splits blocks (commit 6f4ffbee)


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
    if bank.device == "cuda":
        import torch

        budget = min(budget, torch.cuda.mem_get_info()[0] // SHARE_OF_DEVICE)
    elif goal == "memory":
        budget = 0  # one call per round: frames for more would waste memory
    round_s = ENERGY_ROUND_S if goal == "energy" else round_s
    single = Layout(*groups, capacity=1)
    most = files.calls_per_round(inputs, min(MOST_CALLS, max(LEAST_CALLS, int(LONGEST * round_s / max(seconds, 1e-9)))))
    frame = single.frame + files.bytes_of_call(inputs)
    tight = bank.device == "cuda" and goal != "cold" and single.params_bytes + frame > budget
    return Layout(*groups, capacity=capacity_for(single.params_bytes, frame, budget, most), tight=tight)


def replicates_at_once(device: str, layout: Layout, call_bytes: int) -> int:
    """Number of replicates whose processes can have device memory at a time: two if there is room for six workers.

    call_bytes: what a call of the baseline needs beyond its inputs. A worker needs that, its arena, and as much again
    for inputs and outputs of its own. This process needs what it did at its worst.
    """
    if device != "cuda":
        return 2
    if layout.tight:
        return 1
    import torch

    arena = layout.params_bytes + layout.capacity * layout.frame
    workers = 2 * len(Role) * (2 * arena + call_bytes + CONTEXT_BYTES)
    room = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    return 2 if workers + torch.cuda.max_memory_allocated() < FILLED * room else 1


def turn_bytes(layout: Layout, call_bytes: int) -> int:
    """Device memory that a worker may need in its turn. Its inputs lie in the arena, so this is what several calls of
    the baseline take.
    """
    return layout.frame + call_bytes


def leave_room(layout: Layout, least: int, rounds: Iterable[RoundInputs]) -> None:
    """Leave the next worker `least` bytes where they take turns with the device memory.

    What exceeds that stays allocated. On an H100, 6 GiB take as long to allocate again as random numbers to draw.
    """
    if not layout.tight:
        return
    import torch

    if torch.cuda.mem_get_info()[0] < least:
        give_back(layout)
    if torch.cuda.mem_get_info()[0] < least:
        for filled in rounds:
            filled.forget()
        give_back(layout)
