"""Inputs handed out one call at a time on a CPU, both ends in one process: the worker is what its number sets off."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.evidence import Account, RoundTiming  # noqa: E402
from aisp_mcp.judge.parent.timing import cpu  # noqa: E402
from aisp_mcp.judge.presets import Preset, sample_calls  # noqa: E402
from aisp_mcp.judge.protocol.clock import clock  # noqa: E402
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec  # noqa: E402
from aisp_mcp.judge.protocol.roles import Role  # noqa: E402
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, HANDED_OVER, Arena  # noqa: E402
from aisp_mcp.judge.verifier import handoff_cpu  # noqa: E402

X, OUT = (TensorSpec(name, "float32", (8,), (1,), 4) for name in ("x", "out"))
COUNT = 12
LAYOUT = Layout((), (X,), (OUT,), COUNT)


class Numbers(dict[int, int]):
    """The counters of a control block. then: what the worker does when inputs come, given the number of the call."""

    def __init__(self, then: Callable[[int], None]) -> None:
        super().__init__({HANDED_OVER: 0, ANSWERED: 1})
        self.then = then

    def __setitem__(self, which: int, number: int) -> None:
        super().__setitem__(which, number)
        if which == HANDED_OVER:
            self.then(number - 1)


def arenas() -> tuple[Arena, Arena]:
    """Inputs that nobody has seen, and a worker's memory."""
    staged = Arena(torch.zeros(LAYOUT.own.arena_bytes, dtype=torch.uint8), LAYOUT.own)
    for call in range(COUNT):
        staged.inputs(call)["x"].fill_(call + 1.0)
    return staged, Arena(torch.zeros(LAYOUT.arena_bytes, dtype=torch.uint8), LAYOUT)


def test_each_call_has_its_inputs_when_its_number_comes_and_its_outputs_are_taken() -> None:
    staged, arena = arenas()
    seen: list[list[float]] = []

    def work(call: int) -> None:
        seen.append([float(arena.inputs(other)["x"][0]) for other in range(COUNT)])
        [place] = arena.outputs(call)
        place.copy_(2 * arena.inputs(call)["x"])
        if call:
            arena.outputs(call - 1)[0].fill_(-1.0)  # too late to be seen
            arena.inputs(call - 1)["x"].fill_(-1.0)
        numbers[ANSWERED] = call + 2

    numbers = Numbers(work)
    control: Any = SimpleNamespace(stats=numbers)
    held, seconds, _ = handoff_cpu.run(staged, arena, control, COUNT, 60.0)
    assert [row[call:] for call, row in enumerate(seen)] == [
        [call + 1.0] + [0.0] * (COUNT - 1 - call) for call in range(COUNT)
    ]
    assert [float(held.outputs(call)[0][0]) for call in range(COUNT)] == [2.0 * call + 2.0 for call in range(COUNT)]
    assert [float(held.inputs(call)["x"][0]) for call in range(COUNT)] == [call + 1.0 for call in range(COUNT)]
    assert len(seconds) == COUNT


def test_no_garbage_is_collected_while_calls_are_timed() -> None:
    enabled: list[bool] = []

    def work(call: int) -> None:
        enabled.append(gc.isenabled())
        numbers[ANSWERED] = call + 2

    numbers = Numbers(work)
    control: Any = SimpleNamespace(stats=numbers)
    handoff_cpu.run(*arenas(), control, COUNT, 60.0)
    assert enabled == [False] * COUNT
    assert gc.isenabled()


def test_delays_count_between_the_first_call_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after, the parent delays the verifier where both have only one core."""
    readings: list[int] = []

    def work(call: int) -> None:
        numbers[ANSWERED] = call + 2

    def own_delay() -> float:
        readings.append(numbers[ANSWERED])
        return float(numbers[ANSWERED])

    numbers = Numbers(work)
    control: Any = SimpleNamespace(stats=numbers)
    monkeypatch.setattr(handoff_cpu, "own_delay", own_delay)
    _, _, delayed_s = handoff_cpu.run(*arenas(), control, COUNT, 60.0)
    assert readings == [1, COUNT]
    assert delayed_s == COUNT - 1


def test_nobody_waits_for_a_worker_beyond_the_deadline() -> None:
    control: Any = SimpleNamespace(stats=Numbers(lambda call: None))
    begin = clock()
    held, seconds, _ = handoff_cpu.run(*arenas(), control, COUNT, 0.02)
    assert clock() - begin >= 0.02
    assert len(seconds) == COUNT
    assert float(held.outputs(0)[0].sum()) == 0.0  # what was not computed is not there


@pytest.mark.parametrize(
    ("rounds", "delayed_s", "verifier_s", "turns"),
    [(5, 0.0, 0.0, 5), (3, 0.0, 0.0, 3), (5, 5e-4, 0.0, 12), (3, 0.0, 5e-4, 7)],
    ids=["quiet", "quiet and few", "a neighbour of the worker all along", "a neighbour of the verifier"],
)
def test_so_many_calls_are_compared_that_faking_half_of_the_rounds_that_count_is_found(
    rounds: int, delayed_s: float, verifier_s: float, turns: int
) -> None:
    """Rounds that others disturbed are measured again, as long as there are rounds left; all of them are compared."""
    requests: list[tuple[int, int]] = []
    timing = RoundTiming(COUNT, 1e-3, [1000] * COUNT, Account(delayed_s=delayed_s))
    control = SimpleNamespace(layout=LAYOUT, begin_handoff=lambda: None, end_handoff=lambda: None)
    worker = SimpleNamespace(control=control, run_round=lambda *_: timing)
    draw = random.Random(1)
    answer = {"seconds": [2e-6] * COUNT, "delayed_s": verifier_s}
    verifier = SimpleNamespace(post=lambda *_, **__: None, collect=lambda _: answer)
    session = SimpleNamespace(
        stage=lambda _: None,
        new_seed=lambda: 1,
        random=draw,
        verifier=verifier,
        phase=lambda _: nullcontext(),
        options=SimpleNamespace(preset=Preset("some", 1, 0.001, isolated_rounds=rounds)),
    )
    driver: Any = SimpleNamespace(
        session=session,
        workers=dict.fromkeys(Role, worker),
        note_outputs=lambda *_, **__: None,
        number=list(Role).index,
        call_s=dict.fromkeys(Role, 2e-6),
        deadline_s=lambda side, count: 1.0,
        guarded=lambda side, action: action(),
        sample=lambda count, size: sample_calls(count, size, draw),
        verify=lambda side, sample: requests.append((side, len(sample))),
    )
    seconds, beyond_s = cpu.isolated_calls(driver)
    assert seconds == {role: [1e-6] * rounds for role in Role}
    assert beyond_s == {role: pytest.approx([1e-6] * rounds) for role in Role}
    expected = Counter(requests)
    [compared] = {number for side, number in requests if side == Role.CANDIDATE}
    assert expected == {
        (Role.BASELINE, 0): turns,
        (Role.BASELINE_REPEAT, 0): turns,
        (Role.CANDIDATE, compared): turns,
    }
    unseen = 0.5**compared
    assert unseen ** (rounds // 4 + 1) < 1e-3  # the lower quartile of the rounds counts
