"""References for outputs: those of the baseline's worker for the same inputs, and never with those alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from round_support import BASE, BASELINE, CANDIDATE, COUNT, fill, opened, runs, work  # noqa: E402

from aisp_mcp.judge.options import ALL  # noqa: E402
from aisp_mcp.judge.protocol.layout import Layout  # noqa: E402
from aisp_mcp.judge.protocol.shared_memory import Arena  # noqa: E402
from aisp_mcp.judge.verifier.checks import round_checker as judging  # noqa: E402
from aisp_mcp.judge.verifier.main import Verifier  # noqa: E402


@pytest.fixture
def verifier(tmp_path: Path) -> Iterator[Verifier]:
    with opened(tmp_path) as verifier:
        yield verifier


def test_most_calls_cost_no_run_of_the_baseline(verifier: Verifier) -> None:
    before, calls = runs(verifier), 0
    for seed in range(100, 140):
        fill(verifier, seed)
        work(verifier, BASE)
        work(verifier, CANDIDATE)
        assert verifier.check(CANDIDATE, list(range(COUNT)))["failure"] is None
        calls += COUNT
    assert 0.05 < (runs(verifier) - before) / calls < 0.5  # a quarter of 120, drawn


@pytest.mark.parametrize("baseline", ["has not run", "has had fewer calls", "had other inputs", "worked elsewhere"])
def test_without_the_baselines_output_the_verifier_computes_its_own(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, baseline: str
) -> None:
    monkeypatch.setattr(judging, "RECOMPUTED_SHARE", 0.0)
    fill(verifier, 5, (1 if baseline == "has had fewer calls" else COUNT, COUNT))
    if baseline == "had other inputs":
        verifier.fill({str(BASE): COUNT}, 6, "plain")
    if baseline == "worked elsewhere":  # as in rounds without copies: what is in its arena may be old
        work(verifier, BASE)
        verifier.rounds[BASE].staged = True
    elif baseline != "has not run":
        work(verifier, BASE, 1)
    work(verifier, CANDIDATE)
    before = runs(verifier)
    assert verifier.check(CANDIDATE, [COUNT - 1])["failure"] is None
    assert runs(verifier) == before + 1


def test_a_wrong_output_is_found_beside_a_right_one(verifier: Verifier) -> None:
    for seed in range(20):
        fill(verifier, seed)
        work(verifier, BASE)
        work(verifier, CANDIDATE, error=0.01)
        assert verifier.check(CANDIDATE, [1])["code"] == "incorrect_output"


def test_who_reaches_the_baselines_outputs_is_found_by_and_by(verifier: Verifier) -> None:
    """Both are wrong in the same way."""
    rows = 0
    for seed in range(40):
        fill(verifier, seed)
        work(verifier, BASE, error=0.01)
        work(verifier, CANDIDATE, error=0.01)
        rows += verifier.check(CANDIDATE, [1])["code"] == "incorrect_output"
    assert rows >= 2  # of forty, one in four: fewer once in 7,000 times


def test_inputs_that_were_changed_are_seen_beside_unchanged_ones(verifier: Verifier) -> None:
    for seed in range(20):
        fill(verifier, seed)
        work(verifier, BASE)
        work(verifier, CANDIDATE)
        verifier.arenas[CANDIDATE].inputs(1)["x"][3, 4] += 1
        assert verifier.check(CANDIDATE, [1])["code"] == "input_mutated"


@pytest.mark.parametrize("last_only", [True, False])
def test_where_only_the_last_calls_inputs_are_seen_they_are_always_compared(
    verifier: Verifier, last_only: bool
) -> None:
    verifier.checker._last_only = last_only
    fill(verifier, 13)
    work(verifier, CANDIDATE)
    assert verifier.check(CANDIDATE, [0])["failure"] is None
    verifier.arenas[CANDIDATE].inputs(COUNT - 1)["x"][0, 0] += 1
    assert verifier.check(CANDIDATE, [])["failure"] is None  # a baseline's round, of which nothing is compared
    rows = verifier.check(CANDIDATE, [0])
    assert rows["code"] == ("input_mutated" if last_only else None)
    assert verifier.check(CANDIDATE, [COUNT - 1])["code"] == "input_mutated"


def test_inputs_in_host_memory_are_compared_where_they_lie(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round on a GPU is checked on a copy of the device's memory, in which they are not."""
    monkeypatch.setattr(Layout, "host", property(lambda layout: ("x",)))
    monkeypatch.setattr(judging, "RECOMPUTED_SHARE", 0.0)
    for worker_id in (BASE, CANDIDATE):
        arena = verifier.arenas[worker_id]
        verifier.arenas[worker_id] = Arena(arena.flat, arena.layout, Arena(torch.zeros_like(arena.flat), arena.layout))
    fill(verifier, 5)
    for worker_id in (BASE, CANDIDATE):
        work(verifier, worker_id)
    arena = verifier.arenas[CANDIDATE]
    verifier.snapshots[CANDIDATE] = Arena(arena.flat.clone(), arena.layout)
    before = runs(verifier)
    assert verifier.check(CANDIDATE, [0])["failure"] is None
    assert runs(verifier) == before
    verifier.snapshots[CANDIDATE] = Arena(arena.flat.clone(), arena.layout)
    arena.host_inputs(1)["x"][3, 4] += 1
    assert verifier.check(CANDIDATE, [1])["code"] == "input_mutated"


CENTRED = "x - x.mean(1, keepdim=True)"
NORM = "__import__('torch').nn.functional.layer_norm(x, (64,))"


@pytest.mark.parametrize(("expression", "magnified"), [(CENTRED, 1.0), (NORM, 316.0)], ids=["centred", "norm"])
def test_equal_inputs_may_cancel_to_a_rounding(tmp_path: Path, expression: str, magnified: float) -> None:
    """The baseline's own mean of 64 equal numbers is exact, so its error says nothing about another order."""
    file = tmp_path / "baseline_centred.py"
    file.write_text(BASELINE.replace("x.sum(1)", expression))
    fds = [(os.memfd_create("control", os.MFD_ALLOW_SEALING), os.memfd_create("arena", os.MFD_ALLOW_SEALING))]
    verifier_process = Verifier(fds)
    verifier_process.open(str(file), "default", "cpu", vars(ALL), 1, 1 << 20, 0.01)
    verifier_process.attach(0)
    verifier_process.params([0], 7)
    for mode, error, accepted in (
        ("plain", 0.0, True),
        ("constant", 0.0, True),
        ("constant", 2e-7, True),
        ("constant", 1e-3, False),
    ):
        verifier_process.fill({"0": 1}, 5, mode)
        [out] = verifier_process.arenas[0].outputs(0)
        [right] = verifier_process.banks[0].baseline(verifier_process.banks[0].inputs(5, mode))
        out.copy_(right + error * magnified)
        assert (verifier_process.check(0, [0])["failure"] is None) == accepted, (mode, error)
    for fd in fds[0]:
        os.close(fd)


def test_the_reference_has_been_asked_once_when_the_benchmark_is_open(tmp_path: Path) -> None:
    """Libraries that a reference loads are loaded before the rounds, and its errors are raised before any starts."""
    file = tmp_path / "baseline_sums.py"
    file.write_text(
        BASELINE + "\n    asked = 0\n\n    def reference(self, x):\n        self.asked += 1\n        return x.sum(1)\n"
    )
    fds = [(os.memfd_create("control", os.MFD_ALLOW_SEALING), os.memfd_create("arena", os.MFD_ALLOW_SEALING))]
    verifier_process = Verifier(fds)
    verifier_process.open(str(file), "default", "cpu", vars(ALL), 1, 1 << 20, 0.01)
    spec: Any = verifier_process.spec
    assert spec.asked == 1
    for fd in fds[0]:
        os.close(fd)


def look_ahead(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, number: int, free: int = 1 << 40, seconds: float = 60.0
) -> int:
    """Number of answers known ahead within this memory and time."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    [known] = verifier.look_ahead([CANDIDATE], 1000, number, seconds)["known"]
    return int(known)


def test_calls_with_answers_known_ahead_cost_no_run_of_the_baseline(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are they compared with the baseline's worker, whose outputs somebody may have reached."""
    assert look_ahead(verifier, monkeypatch, 2) == 2
    before = runs(verifier)
    for expected in ([2], [0]):
        verifier.fill({str(BASE): COUNT, str(CANDIDATE): COUNT}, 5, "plain", expected)
        work(verifier, BASE, error=0.01)
        work(verifier, CANDIDATE)
        assert verifier.check(CANDIDATE, expected)["failure"] is None
    assert runs(verifier) == before
    verifier.fill({str(BASE): COUNT, str(CANDIDATE): COUNT}, 6, "plain", [1])
    work(verifier, CANDIDATE)
    assert verifier.check(CANDIDATE, [1])["failure"] is None  # none is left
    assert runs(verifier) == before + 1


def test_a_wrong_output_is_found_by_an_answer_known_ahead(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(verifier, monkeypatch, 20)
    for seed in range(20):
        verifier.stage({str(CANDIDATE): COUNT}, seed, [0, 2])
        for call in range(COUNT):
            verifier.arenas[CANDIDATE].inputs(call)["x"].copy_(verifier.staged.arena.inputs(call)["x"])  # type: ignore[union-attr]
        work(verifier, CANDIDATE, error=0.01 * (seed % 2))
        code = verifier.check(CANDIDATE, [0, 2])["code"]
        assert code == ("incorrect_output" if seed % 2 else None)


def test_inputs_with_known_answers_are_new_in_each_round_and_the_same_for_all_sides(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_ahead(verifier, monkeypatch, 4)
    seen = []
    for _ in range(3):
        verifier.fill({str(BASE): COUNT, str(CANDIDATE): COUNT}, 5, "plain", [0, 1])
        ours, theirs = (
            [verifier.arenas[worker_id].inputs(call)["x"].clone() for call in range(COUNT)]
            for worker_id in (BASE, CANDIDATE)
        )
        assert all(torch.equal(*both) for both in zip(ours, theirs, strict=True))
        seen.append(ours)
    assert torch.equal(seen[0][2], seen[2][2])  # by the seed of the round, as if nothing was known
    for call in (0, 1):
        assert not any(torch.equal(seen[one][call], seen[other][call]) for one, other in ((0, 1), (1, 2), (0, 2)))


def test_two_replicates_hide_inputs_that_have_nothing_in_common(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what one has seen would tell the other one which calls are compared."""
    monkeypatch.setattr(type(verifier.spec), "inputs", lambda _, rng: {"x": rng.randint(0, 1 << 40, 16, 64).float()})
    other = 3 + CANDIDATE
    verifier.attach(other)
    verifier.params([other], 8)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    assert verifier.look_ahead([CANDIDATE, other], 1000, 6, 60.0)["known"] == [6, 6]
    seen = []
    for worker_id in (CANDIDATE, other):
        verifier.fill({str(worker_id): COUNT}, 5 + worker_id, "plain", [0, 1, 2])
        seen += [verifier.arenas[worker_id].inputs(call)["x"].clone() for call in range(COUNT)]
    assert not any(torch.equal(*pair) for pair in itertools.combinations(seen, 2))


def test_answers_ahead_take_no_more_memory_than_there_is(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    each = 16 * 4  # bytes of an output
    assert look_ahead(verifier, monkeypatch, 50, free=24 * each * 10) == 10
    assert look_ahead(verifier, monkeypatch, 50, free=24 * each - 24) == 0  # nor are the last ones kept


def test_answers_ahead_take_no_longer_than_they_may(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_ahead(verifier, monkeypatch, 50, seconds=0.0) == 1


def test_memory_that_others_have_taken_meanwhile_ends_nothing(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = verifier.spec.run, itertools.count()

    def run(x: Any) -> Any:
        if next(calls) == 3:
            raise torch.OutOfMemoryError
        return real(x=x)

    monkeypatch.setattr(verifier.spec, "run", run)
    assert look_ahead(verifier, monkeypatch, 50) == 3


def test_adversarial_inputs_have_no_answers_known_ahead(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(verifier, monkeypatch, 4)
    verifier.fill({str(CANDIDATE): COUNT}, 5, "zeros", [0, 1])
    assert verifier.rounds[CANDIDATE].hidden == {}
    assert len(verifier.banks[0].ahead) == 4


def test_a_baseline_that_gives_the_same_buffer_again_is_known_rightly(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec: Any = verifier.spec
    real, buffer = spec.run, torch.empty(16)
    monkeypatch.setattr(spec, "run", lambda x: buffer.copy_(real(x)))
    look_ahead(verifier, monkeypatch, 3)
    verifier.fill({str(CANDIDATE): COUNT}, 5, "plain", [0, 1, 2])
    work(verifier, CANDIDATE)
    before = runs(verifier)
    assert verifier.check(CANDIDATE, [0, 1, 2])["failure"] is None
    assert runs(verifier) == before


def test_who_reaches_the_baselines_outputs_is_found_at_every_call_with_a_known_answer(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "RECOMPUTED_SHARE", 0.0)
    look_ahead(verifier, monkeypatch, 20)
    for seed in range(20):
        verifier.fill({str(BASE): COUNT, str(CANDIDATE): COUNT}, seed, "plain", [1])
        work(verifier, BASE, error=0.01)
        work(verifier, CANDIDATE, error=0.01)
        verifier.banks[0].near = True  # as if nothing had been found before
        assert verifier.check(CANDIDATE, [1])["code"] == "incorrect_output"
