"""When a function is replayed, and when it is called. No GPU is needed: the stand-in for a graph computes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.verifier import reference  # noqa: E402
from aisp_mcp.judge.verifier.reference import Replayed  # noqa: E402

pytestmark = [pytest.mark.torch]


class OnDevice(torch.Tensor):  # type: ignore[misc]
    """A tensor that says it is on a GPU."""

    is_cuda = True


class Program:
    """A function of one tensor. waits: it cannot be captured. drifts: its result depends on the number of its calls."""

    def __init__(self, waits: bool = False, drifts: bool = False) -> None:
        self.waits, self.drifts = waits, drifts
        self.calls, self.is_captured = 0, False
        self.last: tuple[Any, Any] = ({}, None)  # tensors and result

    def __call__(self, tensors: dict[str, Any]) -> Any:
        if self.waits and self.is_captured:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.calls += 1
        self.last = tensors, tensors["x"] * 2 + (self.calls if self.drifts else 0)
        return self.last[1]


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Program:
    """One that is captured by the stand-in."""
    made = Program(**getattr(request, "param", {}))

    class Graph:
        captured: Any

        def replay(self) -> None:
            given, result = self.captured
            result.copy_(given["x"] * 2)

    @contextmanager
    def graph(new: Any) -> Iterator[None]:
        made.is_captured = True
        try:
            yield
        finally:
            made.is_captured, new.captured = False, made.last

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(reference, "SLOW_S", -1.0)
    return made


def results(program: Program, count: int, may_replay: bool = True) -> list[float]:
    """Results of calls on 1, 2, 3, …"""
    function = Replayed(program, may_replay)
    return [float(function({"x": torch.full((4,), float(n)).as_subclass(OnDevice)})[0]) for n in range(1, count + 1)]


def test_a_slow_function_is_replayed_from_its_third_call_on(program: Program) -> None:
    assert results(program, 5) == [2, 4, 6, 8, 10]
    assert program.calls == 3  # one of them while it was captured


@pytest.mark.parametrize("program", [{"waits": True}, {"drifts": True}], indirect=True)
def test_a_function_that_a_replay_does_not_repeat_is_called_each_time(program: Program) -> None:
    found = results(program, 5)
    assert program.calls >= 5
    if program.waits:
        assert found == [2, 4, 6, 8, 10]


def test_nothing_else_is_captured(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    results(program, 4, may_replay=False)
    assert program.calls == 4
    monkeypatch.setattr(reference, "MOST_BYTES", 8)
    results(program, 4)
    assert program.calls == 8
    monkeypatch.setattr(reference, "MOST_BYTES", 1 << 30)
    monkeypatch.setattr(reference, "SLOW_S", 60.0)
    results(program, 4)
    assert program.calls == 12


def test_what_a_replay_gave_stays_as_it_was(program: Program) -> None:
    function = Replayed(program, may_replay=True)
    outputs = [function({"x": torch.full((4,), float(n)).as_subclass(OnDevice)}) for n in (1, 2, 3, 4)]
    assert [float(output[0]) for output in outputs] == [2, 4, 6, 8]
