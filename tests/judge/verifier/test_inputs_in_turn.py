"""Large inputs, which workers get one after another in the same memory: drawn once, and kept while there is room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from round_support import AGAIN, BASE, CANDIDATE, fill, opened, work  # noqa: E402

from aisp_mcp.judge.verifier import main as verifier_main  # noqa: E402
from aisp_mcp.judge.verifier.checks import round_checker as judging  # noqa: E402
from aisp_mcp.judge.verifier.main import Verifier  # noqa: E402

pytestmark = [pytest.mark.torch]


@pytest.fixture
def in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifier]:
    """One whose workers use the same arena in turn, on a device with room for what they need."""
    monkeypatch.setattr(judging, "RECOMPUTED_SHARE", 0.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    with opened(tmp_path) as verifier:
        verifier.layout = verifier.checker._layout = replace(verifier.layout, tight=True)
        for worker_id in (AGAIN, CANDIDATE):
            verifier.arenas[worker_id] = verifier.arenas[BASE]
        yield verifier


def test_with_one_arena_an_output_is_not_compared_with_itself(in_turns: Verifier) -> None:
    """All workers use it in turn, so the baseline's outputs are no longer there."""
    fill(in_turns, 5, (1, 1))
    work(in_turns, CANDIDATE, 1, error=1.0)
    assert in_turns.check(CANDIDATE, [0])["code"] == "incorrect_output"


def test_inputs_that_workers_get_in_turn_are_drawn_once(in_turns: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = in_turns.spec
    draw, draws, seen = type(spec).inputs, [], []
    monkeypatch.setattr(type(spec), "inputs", lambda self, rng: draws.append(1) or draw(self, rng))
    for seed in (5, 6):
        for worker_id in (BASE, CANDIDATE, AGAIN):
            in_turns.fill({str(worker_id): 1}, seed, "plain", [0])
            given = in_turns.arenas[worker_id].inputs(0)["x"]
            seen.append(given.clone())
            work(in_turns, worker_id, 1)
            assert in_turns.check(worker_id, [0])["failure"] is None
            given.zero_()  # does not reach the next worker
    assert len(draws) == 2
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[3])


def test_a_baseline_that_may_change_its_inputs_leaves_those_of_the_next_worker(
    in_turns: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("in_place", "scratch"):
        monkeypatch.setattr(type(in_turns.spec), name, ("x",))
    monkeypatch.setattr(type(in_turns.spec), "run", lambda self, x: x.mul_(2).sum(1) / 2)
    given = []
    for worker_id in (CANDIDATE, AGAIN):
        in_turns.fill({str(worker_id): 1}, 5, "plain", [0])
        given.append(in_turns.arenas[worker_id].inputs(0)["x"].clone())
        work(in_turns, worker_id, 1)
        assert in_turns.check(worker_id, [0])["failure"] is None
    assert torch.equal(*given)


def test_a_change_of_inputs_that_are_kept_for_others_is_seen(in_turns: Verifier) -> None:
    for worker_id in (BASE, CANDIDATE):
        in_turns.fill({str(worker_id): 1}, 5, "plain", [0])
        work(in_turns, worker_id, 1)
    in_turns.arenas[CANDIDATE].inputs(0)["x"][3, 4] += 1
    assert in_turns.check(CANDIDATE, [0])["code"] == "input_mutated"


def test_kept_inputs_make_room_for_the_next_worker(in_turns: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    fill(in_turns, 5, (1, 1))
    assert in_turns.rounds[BASE].drawn
    assert not emptied
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (in_turns.turn_bytes - 1, 1 << 40))
    fill(in_turns, 6, (1, 1))
    assert emptied
    assert not in_turns.rounds[BASE].drawn


def test_calls_begin_when_the_bandwidth_is_there(in_turns: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[bool] = []
    monkeypatch.setattr(verifier_main, "await_bandwidth", lambda layout: waits.append(layout.tight))
    in_turns.stage({str(BASE): 1}, 5)
    in_turns.write_staged(BASE, own=False)
    assert waits == [True]
