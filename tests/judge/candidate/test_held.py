"""Outputs that stay where their calls left them: kept apart from each other, and as the contract says."""

from __future__ import annotations

import os
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.candidate.outputs import (  # noqa: E402  # noqa: E402
    MORE_CALLS,
    ContractError,
    HeldOutputs,
    OutputRules,
    OutputStrides,
    SharedOutputError,
    extent,
    touch_memory,
)
from aisp_mcp.judge.protocol.layout import Layout  # noqa: E402
from aisp_mcp.judge.protocol.module_loader import contract, flatten  # noqa: E402
from aisp_mcp.judge.protocol.shared_memory import Arena, ControlBlock  # noqa: E402

ARENA = torch.zeros(1 << 16, dtype=torch.uint8)


def held(example: Any, shares_inputs: bool = True, wrapped: list[int] | None = None) -> HeldOutputs:
    """For outputs like the example. lent: an output may not lie in the arena."""
    specs = tuple(contract(name, tensor) for name, tensor in flatten(example))
    rules = OutputRules(off_limits=[extent(ARENA)] if shares_inputs else [])
    calls = wrapped if wrapped is not None else []
    layout = Layout((), (), specs, 8)
    fd = os.memfd_create("control", os.MFD_ALLOW_SEALING)
    try:
        arena, control = Arena(ARENA, layout), ControlBlock(fd, layout)
        return HeldOutputs(rules, OutputStrides(control, arena, free=False), arena, control, lambda: calls.append(1))
    finally:
        os.close(fd)


def values(outputs: HeldOutputs) -> list[list[float]]:
    """First element of each tensor of each call, at the addresses that the outputs show."""
    return [[float(tensor.flatten()[0]) for tensor in tensors] for tensors in outputs.outputs]


@pytest.mark.parametrize("structure", ["tensor", "tuple", "dict"])
@pytest.mark.parametrize("reused", [False, True], ids=["fresh memory", "one buffer"])
def test_outputs_of_all_calls_are_there_at_the_end(structure: str, reused: bool) -> None:
    buffer = torch.empty(2, 3)
    wrap = {"tensor": lambda x: x, "tuple": lambda x: (x, x + 10), "dict": lambda x: {"a": x, "b": x + 10}}[structure]
    outputs = held(wrap(buffer))
    for count in (1, 1, 4):
        outputs.clear()
        results = map(buffer.fill_ if reused else lambda call: torch.full((2, 3), float(call)), range(count))
        outputs.round_at_rest(count, map(wrap, results).__next__)
        outputs.settle()
    assert [row[0] for row in values(outputs)] == [0.0, 1.0, 2.0, 3.0]
    places = [tensor.data_ptr() for tensors in outputs.outputs for tensor in tensors]
    assert outputs.addresses == places
    assert len(set(places)) == len(places)
    assert (outputs.copied_ns > 0) == reused


def test_outputs_that_are_dropped_leave_their_memory_to_the_next_call() -> None:
    outputs, alive, most = held(torch.empty(2, 3)), weakref.WeakSet[Any](), list[int]()

    def run() -> torch.Tensor:
        most.append(len(alive))
        alive.add(made := torch.ones(2, 3))
        return made

    for drops in (False, True, False):
        outputs.clear()
        most.clear()
        outputs.round_at_rest(4, run, drops)
        assert most == [most[0] + (0 if drops else call) for call in range(4)]


def test_an_output_with_other_strides_is_copied_and_so_are_all_later_ones() -> None:
    wrapped = list[int]()
    outputs = held(torch.empty(2, 3), wrapped=wrapped)
    outputs.keep(torch.arange(6.0).view(3, 2).t())
    assert wrapped == [1]
    assert outputs.outputs[0][0].stride() == (3, 1)
    assert outputs.outputs[0][0].tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]


@pytest.mark.parametrize(
    "output",
    [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3, 2), (torch.zeros(2, 3), torch.zeros(2, 3))],
    ids=["dtype", "shape", "number"],
)
def test_what_the_contract_does_not_promise_is_refused(output: Any) -> None:
    with pytest.raises(ContractError):
        held(torch.empty(2, 3)).keep(output)


def test_an_output_in_the_memory_of_an_input_is_refused_unless_it_is_allowed() -> None:
    inside = ARENA[256:280].view(torch.float32).view(2, 3)
    with pytest.raises(SharedOutputError):
        held(torch.empty(2, 3)).keep(inside)
    outputs = held(torch.empty(2, 3), shares_inputs=False)
    outputs.keep(inside)
    outputs.keep(ARENA[512:536].view(torch.float32).view(2, 3))
    assert outputs.copied_ns == 0  # two inputs, though of one storage


@pytest.mark.parametrize(("count", "touched"), [(5, 5 + MORE_CALLS), (1000, 256)], ids=["a round", "at most 256 MiB"])
def test_memory_is_touched_for_the_outputs_of_a_round(
    monkeypatch: pytest.MonkeyPatch, count: int, touched: int
) -> None:
    empty, sizes = torch.empty, list[int]()
    monkeypatch.setattr(torch, "empty", lambda size, **how: sizes.append(size) or empty(1, **how))
    touch_memory(Layout((), (), (contract("out", torch.zeros(1 << 18)),), 8), count)
    assert sizes == [1 << 20] * touched
