"""Both ends of a round behind the gate, on host memory: what the worker lays out, and what the verifier makes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_streams import HostEvent, HostGate, Late, Never

torch = pytest.importorskip("torch")

from aisp_mcp.errors import BenchmarkError  # noqa: E402
from aisp_mcp.judge.candidate.main import GATE, ISOLATED, NO_COPY, STORE, Worker  # noqa: E402
from aisp_mcp.judge.candidate.outputs import (  # noqa: E402
    OutputRules,
    OutputStrides,
)
from aisp_mcp.judge.options import ALL  # noqa: E402
from aisp_mcp.judge.protocol import cuda_ipc  # noqa: E402
from aisp_mcp.judge.protocol.clock import clock  # noqa: E402
from aisp_mcp.judge.protocol.cuda_ipc import MappedMemory, Staged  # noqa: E402
from aisp_mcp.judge.protocol.shared_memory import (  # noqa: E402
    ANSWERED,
    ENDED,
    HANDED_OVER,
    NO_LIMIT,
    OPENED,
    REFUSED,
    Arena,
    ControlBlock,
)
from aisp_mcp.judge.verifier import handoff_gpu as handoff  # noqa: E402
from aisp_mcp.judge.verifier.main import Verifier  # noqa: E402

BASELINE = '''"""Twice the input."""
from aisp_mcp.bench import Benchmark


class Twice(Benchmark):
    def inputs(self, rng):
        return {"x": rng.randn(64)}

    def run(self, x):
        return 2 * x
'''
COUNT = 3


@pytest.fixture
def verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifier]:
    """One that has opened a specification and made the memory of worker 2, all of it on the host."""
    file = tmp_path / "baseline_twice.py"
    file.write_text(BASELINE)
    fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
    controls = [os.memfd_create("control", os.MFD_ALLOW_SEALING) for _ in range(3)]
    verifier_process = Verifier([(control, fd) for control in controls])
    verifier_process.open(str(file), "default", "cpu", vars(ALL), 1, 1 << 20, 0.001)
    verifier_process.attach(2)
    verifier_process.controls[2] = ControlBlock(controls[2], verifier_process.layout)
    host = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: host(*size, **{**how, "device": "cpu"}))
    monkeypatch.setattr(cuda_ipc, "FLUSH_BYTES", 16)
    verifier_process.staged = Staged(verifier_process.layout, "cuda")
    verifier_process.mapped[2] = MappedMemory(verifier_process.layout)
    verifier_process.mapped[2].own = Arena(
        torch.zeros(verifier_process.layout.own.arena_bytes, dtype=torch.uint8), verifier_process.layout.own
    )
    yield verifier_process
    for one in (fd, *controls):
        os.close(one)


@pytest.fixture
def worker(verifier: Verifier) -> Worker:
    """A candidate's, with the memory that the verifier pours into."""
    own = verifier.mapped[2].own
    assert own is not None
    instance = object.__new__(Worker)
    said: list[bytes] = []
    instance.__dict__ |= {
        "cuda": False,
        "torch": SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: said.append(b"synchronised"))),
        "layout": verifier.layout,
        "control": verifier.controls[2],
        "said": said,
        "say": said.append,
        "stream": None,
        "gate": SimpleNamespace(shut=lambda _: said.append(b"shut"), end=lambda _: said.append(b"end")),
        "inputs": [verifier.arenas[2].inputs(call) for call in range(COUNT)],
        "strides": OutputStrides(verifier.controls[2], verifier.arenas[2], free=False),
        "own": None,
        "local": verifier.arenas[2].inputs(0),
        "own_inputs": [own.inputs(call) for call in range(COUNT)],
        "held": [],
        "kept": None,
        "rules": OutputRules(),
    }
    return instance


def named(worker: Worker, verifier: Verifier) -> list[int]:
    """The addresses on the control block, and the memory around each of them as if a handle had been opened."""
    outputs = worker.held[:COUNT]
    there = verifier.mapped[2]
    there._flat = {tensor.data_ptr(): tensor.view(torch.uint8) for tensor in outputs}
    there._begins = sorted(there._flat)
    return list(worker.control.addresses[:COUNT])


def lay_out_and_pour(worker: Worker, verifier: Verifier) -> None:
    verifier.stage({"2": COUNT}, 11)
    worker.round_bare(COUNT, lambda x: torch.zeros_like(x), NO_COPY | GATE)
    assert verifier.mapped[2].map_outputs(COUNT, named(worker, verifier))
    verifier.write_staged(2, own=True)


def test_calls_are_laid_out_and_taken_at_the_answer(worker: Worker, verifier: Verifier) -> None:
    verifier.stage({"2": COUNT}, 11)
    late = worker.own_inputs[0]["x"].clone()
    worker.round_bare(COUNT, lambda x: torch.zeros_like(x), NO_COPY | GATE)
    said: Any = worker.said  # type: ignore[attr-defined]
    assert said == [b"shut", b"end", b"Q", b"synchronised"]
    assert verifier.mapped[2].map_outputs(COUNT, named(worker, verifier))
    assert torch.equal(worker.own_inputs[0]["x"], late)  # nobody has seen the inputs yet
    assert verifier.write_staged(2, own=True)["probe_s"] > 0
    for call, output in enumerate(worker.held[:COUNT]):  # what waits at the gate is done now
        output.copy_(2 * worker.own_inputs[call]["x"])
    assert verifier.snapshot(2, own=True)["probe_s"] > 0
    assert verifier.check(2, list(range(COUNT)))["failure"] is None
    verifier.snapshot(2, own=True)
    worker.held[0].zero_()  # too late to be seen
    assert verifier.check(2, [0])["failure"] is None


@pytest.mark.parametrize("done", [0, COUNT - 1])
def test_what_is_not_there_at_the_answer_is_wrong(worker: Worker, verifier: Verifier, done: int) -> None:
    lay_out_and_pour(worker, verifier)
    for call in range(done):
        worker.held[call].copy_(2 * worker.own_inputs[call]["x"])
    verifier.snapshot(2, own=True)
    assert "call" in verifier.check(2, list(range(COUNT)))["failure"]


@pytest.mark.parametrize("answer", [b"D", b"", None], ids=["an answer", "nobody left to give one", "the device"])
def test_the_verifier_looks_when_the_answer_comes_and_leaves_it_there(
    worker: Worker, verifier: Verifier, answer: bytes | None
) -> None:
    lay_out_and_pour(worker, verifier)
    there, write = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(
            verifier.snapshot, 2, own=True, ended=0, pipe=f"/proc/{os.getpid()}/fd/{there}", deadline_s=60.0
        )
        for call, output in enumerate(worker.held[:COUNT]):
            output.copy_(2 * worker.own_inputs[call]["x"])
        answered = clock()
        if answer is None:
            worker.control.stats[ENDED] += 1
        else:
            os.write(write, answer)
            os.close(write)
        assert taking.result(30)["at_s"] > answered
    if answer is None:
        os.close(write)
    assert os.read(there, 1) == (answer or b"")
    os.close(there)
    assert verifier.check(2, list(range(COUNT)))["failure"] is None


def test_nobody_is_waited_for_beyond_the_deadline(worker: Worker, verifier: Verifier) -> None:
    lay_out_and_pour(worker, verifier)
    there, write = os.pipe()
    began = clock()
    assert (
        verifier.snapshot(2, own=True, pipe=f"/proc/{os.getpid()}/fd/{there}", deadline_s=0.01)["at_s"] > began + 0.01
    )
    os.close(there)
    os.close(write)
    with pytest.raises(BenchmarkError) as raised:
        verifier.snapshot(2, own=True, pipe=f"/proc/{os.getpid()}/fd/{there}", deadline_s=0.01)
    assert raised.value.code == "VERIFIER_BLIND"


def test_inputs_that_were_changed_are_seen_in_its_own_memory(worker: Worker, verifier: Verifier) -> None:
    lay_out_and_pour(worker, verifier)
    for call in range(COUNT):
        worker.held[call].copy_(2 * worker.own_inputs[call]["x"])
    worker.own_inputs[1]["x"][3] += 1
    verifier.snapshot(2, own=True)
    answer = verifier.check(2, list(range(COUNT)))
    assert answer["code"] == "input_mutated"


def test_rounds_with_copies_leave_outputs_where_the_judge_has_them(worker: Worker, verifier: Verifier) -> None:
    verifier.stage({"2": COUNT}, 11)
    verifier.write_staged(2, own=False)  # no gate on the host: what is laid out is done at once
    worker.round_bare(COUNT, lambda x: 2 * x, GATE)
    said: Any = worker.said  # type: ignore[attr-defined]
    assert said == [b"shut", b"end", b"Q", b"synchronised"]
    verifier.snapshot(2)
    assert verifier.check(2, [1, 2])["failure"] is None  # the first one's inputs are the local ones here


@pytest.mark.parametrize("stale", [False, True])
def test_outputs_of_one_buffer_are_stored_and_its_inputs_are_not(
    worker: Worker, verifier: Verifier, stale: bool
) -> None:
    buffer = torch.zeros(64)

    def run(x: Any) -> Any:
        return buffer if stale and bool(buffer.any()) else torch.mul(x, 2, out=buffer)

    verifier.stage({"2": COUNT}, 11)
    verifier.write_staged(2, own=True)
    worker.round_bare(COUNT, run, NO_COPY | GATE | STORE)
    assert worker.control.stats[REFUSED] == 0
    verifier.snapshot(2, own=True)
    buffer.zero_()
    answer = verifier.check(2, list(range(COUNT)))
    assert bool(answer["failure"]) == stale
    verifier.snapshot(2, own=True)
    worker.own_inputs[1]["x"][3] += 1
    verifier.snapshot(2, own=True)
    assert stale or verifier.check(2, list(range(COUNT)))["code"] == "input_mutated"


def test_who_raises_on_other_inputs_goes_on_and_says_so(worker: Worker) -> None:
    def insists(x: Any) -> Any:
        if x.data_ptr() != worker.local["x"].data_ptr():
            raise ValueError("not my tensor")
        return 2 * x

    worker.round_bare(COUNT, insists, NO_COPY | GATE)
    assert worker.control.stats[REFUSED] == 1
    assert not worker.held or worker.held == [[]]
    worker.round_bare(COUNT, insists, 0)
    assert worker.control.stats[REFUSED] == 0
    with pytest.raises(ZeroDivisionError):
        worker.round_bare(COUNT, lambda x: 1 / 0, 0)
    assert worker.control.stats[OPENED] == 0


# --- calls by themselves: on the host a stream does at once what is laid into it


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch, verifier: Verifier) -> None:
    """In place of the device's, on the verifier's side."""
    monkeypatch.setattr(torch.cuda, "Event", HostEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    verifier.gates[2] = HostGate(verifier.controls[2])  # type: ignore[assignment]


def handed_over(worker: Worker, verifier: Verifier, run: Any, bits: int, early: int = 0) -> list[float]:
    """The seconds of each call of a round whose inputs come one call at a time. bits: of candidate/main.py."""
    worker.gate = HostGate(verifier.controls[2], early)
    worker.spot = torch.zeros(1)
    read = bool(bits & NO_COPY)
    if read:  # where outputs lie is known from the round before
        places = [torch.zeros(64) for _ in range(COUNT)]
        worker.__dict__["places"] = places
        verifier.mapped[2]._flat = {place.data_ptr(): place.view(torch.uint8) for place in places}
        verifier.mapped[2]._begins = sorted(verifier.mapped[2]._flat)
    verifier.stage({"2": COUNT}, 11)
    if read:
        assert verifier.mapped[2].map_outputs(COUNT, [place.data_ptr() for place in places], apart=True)
    verifier.controls[2].begin_handoff()
    with ThreadPoolExecutor(1) as pool:
        handing = pool.submit(verifier.handoff_gpu, 2, own=read, taken=True, stored=False, deadline_s=30.0)
        worker.round_bare(COUNT, run, bits | ISOLATED)
        values: list[float] = handing.result(30)["seconds"]
    return values


def into(worker: Worker) -> Any:
    """A candidate that computes into memory of its own."""
    calls = iter(range(COUNT))

    def run(x: Any) -> Any:
        return torch.mul(x, 2, out=worker.__dict__["places"][next(calls)])

    return run


@pytest.mark.parametrize(
    "bits", [NO_COPY | GATE, NO_COPY, GATE, 0], ids=["alone", "with host", "alone, copies", "copies"]
)
def test_inputs_come_one_call_at_a_time_and_outputs_are_taken_with_each(
    worker: Worker, verifier: Verifier, streams: None, bits: int
) -> None:
    seen: list[list[float]] = []
    own, arena = verifier.mapped[2].own, verifier.arenas[2]
    assert own is not None
    compute = into(worker) if bits & NO_COPY else lambda x: 2 * x

    def run(x: Any) -> Any:
        places = own if bits & NO_COPY else arena
        seen.append([float(places.inputs(call)["x"].abs().sum()) for call in range(COUNT)])
        return compute(x)

    for call in range(COUNT):
        for place in (own, arena):
            place.inputs(call)["x"].zero_()
    worker.local = {"x": torch.zeros(64)}
    seconds = handed_over(worker, verifier, run, bits)
    assert len(seconds) == COUNT
    assert min(seconds) > 0
    there = [[amount > 0 for amount in amounts] for amounts in seen]
    assert there == [[index <= call for index in range(COUNT)] for call in range(COUNT)]
    assert verifier.check(2, list(range(COUNT)))["failure"] is None


def test_what_is_computed_behind_the_number_is_wrong(worker: Worker, verifier: Verifier, streams: None) -> None:
    """A device has no turn for others meanwhile; the host has, and the outputs are taken when the number says so."""

    def late(x: Any) -> Any:
        place = worker.__dict__["places"][len(worker.held)]
        if worker.held:
            worker.held[-1].copy_(2 * worker.own_inputs[len(worker.held) - 1]["x"])
        return place

    handed_over(worker, verifier, late, NO_COPY | GATE)
    assert "call 0" in verifier.check(2, [0])["failure"]


def test_who_says_a_number_too_early_gets_the_next_inputs_and_wrong_outputs(
    worker: Worker, verifier: Verifier, streams: None
) -> None:
    until, run = clock() + 30, into(worker)

    def behind_its_number(x: Any) -> Any:
        while verifier.controls[2].stats[HANDED_OVER] < 2:  # what it said took the verifier on to the next call
            assert clock() < until
        return run(x)

    handed_over(worker, verifier, behind_its_number, NO_COPY | GATE, early=1)
    assert "call 0" in verifier.check(2, [0])["failure"]


def test_nobody_waits_for_a_number_that_does_not_come(worker: Worker, verifier: Verifier, streams: None) -> None:
    verifier.stage({"2": COUNT}, 11)
    verifier.controls[2].begin_handoff()
    with ThreadPoolExecutor(1) as pool:
        handing = pool.submit(verifier.handoff_gpu, 2, own=False, taken=True, stored=False, deadline_s=30.0)
        verifier.controls[2].end_handoff()  # as the parent does when the worker is gone
        assert len(handing.result(30)["seconds"]) == COUNT
    assert verifier.check(2, [0])["failure"]


@pytest.mark.parametrize("event", [Never, Late])
def test_a_device_that_does_not_come_to_its_end_is_waited_for_until_the_deadline(
    verifier: Verifier, streams: None, monkeypatch: pytest.MonkeyPatch, event: type[HostEvent]
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(handoff, "PATIENCE_S", 0.01)
    Late.control = control = verifier.controls[2]
    verifier.gates[2] = SimpleNamespace(wait=lambda *_: None, say=lambda *_: None)  # type: ignore[assignment]
    verifier.stage({"2": COUNT}, 11)
    control.begin_handoff()
    if event is Late:
        assert verifier.handoff_gpu(2, own=False, taken=True, stored=False, deadline_s=0.01)["seconds"] == []
    else:
        with pytest.raises(BenchmarkError) as raised:
            verifier.handoff_gpu(2, own=False, taken=True, stored=False, deadline_s=0.01)
        assert raised.value.code == handoff.HELD
    assert control.stats[HANDED_OVER] == control.stats[ANSWERED] == NO_LIMIT  # the worker is not to wait


def test_a_verifier_that_fails_lets_the_worker_go(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff, "run", lambda *_: 1 / 0)
    verifier.gates[2] = SimpleNamespace()  # type: ignore[assignment]
    verifier.stage({"2": COUNT}, 11)
    verifier.controls[2].begin_handoff()
    with pytest.raises(ZeroDivisionError):
        verifier.handoff_gpu(2, own=False, taken=True, stored=False, deadline_s=30.0)
    assert verifier.controls[2].stats[HANDED_OVER] == NO_LIMIT
