"""Order in which replicates start, are traced and end, and what is known of their calls. No process is needed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import Verifier, trial

from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.parent.session import ComparisonAborted
from aisp_mcp.judge.parent.timing import replicate, strategy
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy
from aisp_mcp.judge.parent.timing.gpu.round import COMPARED, MAX_COMPARED
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.messages import DROP, DUMMY
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verifier.inputs.bank import InputBank

CHECKED = 40  # calls of a replicate


class Loading:
    """A worker that has loaded its libraries when it is waited for, if it is so for long enough."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    def __repr__(self) -> str:
        return str(self.fake.index)

    def loaded(self, within_s: float) -> bool:
        if in_time := within_s > 0:
            self.fake._say("loaded")
        return in_time


class Fake:
    """A replicate that writes down what is asked of it."""

    said: list[str]
    fails: str = ""

    def __init__(self, session: Any, index: int) -> None:
        self.session, self.index, self.closed = session, index, False
        self.result, self.workers = SimpleNamespace(index=index, checked=CHECKED), {0: Loading(self)}

    def number(self, role: Role) -> int:
        return self.index + role.number

    def _say(self, what: str) -> None:
        self.said.append(f"{what} {self.index}")
        if self.said[-1] == self.fails:
            raise ComparisonAborted("candidate_crashed", "it ended", {})

    def post_attach(self) -> None:
        self._say("post")

    def start(self) -> None:
        self._say("start")

    def attach(self) -> None:
        self._say("attach")

    def prepare(self) -> None:
        self._say("prepare")

    def wait_ready(self) -> None:
        self._say("ready")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._say("close")


def walked(
    monkeypatch: pytest.MonkeyPatch,
    total: int,
    spare: int,
    device: str = "cuda",
    fails: str = "",
    kernels: bool = False,
    now_s: float = 0.5,
    replicates_at_once: int = 2,
) -> list[str]:
    """Steps of all replicates in order; "run" stands for a measurement."""
    said, phases = list[str](), list[str]()

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        phases.append(name)
        yield
        phases.remove(name)

    def logged(kind: str, **record: Any) -> None:
        assert kind != "ahead" or record["booked"]  # apart from the starts

    monkeypatch.setattr(Fake, "said", said, raising=False)
    monkeypatch.setattr(Fake, "fails", fails)
    monkeypatch.setattr(replicate, "Driver", Fake)
    monkeypatch.setattr(replicate, "spare_cpus", lambda: spare)
    monkeypatch.setattr(GpuStrategy, "trace", lambda _, one: one._say("trace"))
    options = SimpleNamespace(preset=replace(PRESETS["default"], replicates=total), device=device, protections=ALL)
    verifier = SimpleNamespace(
        post=lambda verb, **request: said.append(f"look ahead for {request['worker_ids']} {request['number']}"),
        collect=lambda verb: said.append("known") or {"known": [], "booked": phases == [verb]},
    )
    session: Any = SimpleNamespace(options=options, phase=phase, kernels=None, verifier=verifier)
    session.is_tight, session.replicates_at_once = replicates_at_once == 1, replicates_at_once
    session.random, session.log = random.Random(1), SimpleNamespace(append=logged)
    if kernels:
        session.kernels = SimpleNamespace(
            begin=lambda: said.append("begin"),
            wait=lambda workers, deadline_s: said.append(f"wait for {list(workers)}"),
            hand_on=lambda workers: said.append("hand on"),
        )
        session.opened = {"probe_s": 1.0}
        session.probe_s = lambda times: said.append("idle") or now_s
    steps = GpuStrategy() if device == "cuda" else CpuStrategy()
    with replicate.started_replicates(session, steps) as drivers:
        said.extend(f"run {driver.index}" for driver in drivers)  # type: ignore[attr-defined]
    return said


def test_kernels_are_handed_on_before_a_program_runs_and_none_are_made_beside_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = walked(monkeypatch, 3, spare=4, kernels=True)
    timed = sum(replace(PRESETS["default"], replicates=3).comparisons_per_round(random.Random(1)))
    first = [
        "post 0",
        "post 1",
        "start 0",
        "start 1",
        "attach 0",
        "attach 1",
        f"look ahead for [0, 1] {timed + MAX_COMPARED}",
    ]
    first += ["begin", "loaded 0", "loaded 1", "wait for [0, 1]", "known", "hand on", "hand on"]
    first += [
        "idle",
        "prepare 0",
        "prepare 1",
        "ready 0",
        "ready 1",
        "run 0",
    ]  # nobody's work is on the device at "idle"
    assert events[: len(first)] == first
    then = ["start 2", "trace 1", "close 1", "attach 2", f"look ahead for [2] {CHECKED + COMPARED}"]
    then += ["begin", "loaded 2", "wait for [2]", "known", "hand on", "prepare 2", "ready 2", "run 2", "close 2"]
    assert events[events.index("start 2") :] == then


def test_replicates_take_turns_with_a_tight_device(monkeypatch: pytest.MonkeyPatch) -> None:
    events = walked(monkeypatch, 2, spare=4, replicates_at_once=1)
    turns = [event for event in events if event.split()[0] in ("start", "run", "close", "attach", "look")]
    assert turns == ["start 0", "attach 0", "run 0", "start 1", "close 0", "attach 1", "run 1", "close 1"]


def test_who_never_loads_its_libraries_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "START_DEADLINE_S", 0.0)
    events = walked(monkeypatch, 1, spare=4)
    assert "run 0" in events  # a fake worker says that it is ready all the same
    assert "loaded 0" not in events


@pytest.mark.parametrize("now_s", [0.5, 2.0])
def test_no_program_makes_an_idle_device_look_busy(monkeypatch: pytest.MonkeyPatch, now_s: float) -> None:
    """The idle device is probed before a program runs beside it, and only a shorter time is believed later."""
    seen = dict[str, float]()
    real = replicate._in_turn

    def walk(session: Any, steps: Any, started: list[Any]) -> Any:
        for one in real(session, steps, started):
            seen.update(session.opened)
            yield one

    monkeypatch.setattr(replicate, "_in_turn", walk)
    walked(monkeypatch, 3, spare=4, kernels=True, now_s=now_s)
    assert seen["probe_s"] == min(1.0, now_s)


def test_the_last_replicate_is_traced_while_the_next_ones_load_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        what for what in walked(monkeypatch, 3, spare=4) if what.split()[0] not in ("post", "look", "loaded", "known")
    ]
    first = ["start 0", "start 1", "attach 0", "attach 1", "prepare 0", "prepare 1", "ready 0", "ready 1"]
    then = ["run 0", "close 0", "run 1", "start 2", "trace 1", "close 1", "attach 2", "prepare 2", "ready 2", "run 2"]
    assert events == [*first, *then, "close 2"]


@pytest.mark.parametrize("spare", [1, 4])
@pytest.mark.parametrize("total", [1, 2, 3, 5])
def test_one_replicate_is_traced_and_none_is_left(monkeypatch: pytest.MonkeyPatch, total: int, spare: int) -> None:
    events = walked(monkeypatch, total, spare)
    assert sum(what.startswith("trace") for what in events) == 1
    for number in range(total):
        places = [events.index(f"{verb} {number}") for verb in ("start", "attach", "ready", "run", "close")]
        assert places == sorted(places)
        if number >= 2:  # it uses the memory of the last replicate but one
            assert events.index(f"close {number - 2}") < events.index(f"attach {number}")
    assert not any(what.startswith(("trace", "look")) for what in walked(monkeypatch, total, spare, "cpu"))


@pytest.mark.parametrize("fails", ["trace 1", "ready 2", "attach 2", "start 2"])
def test_whatever_ends_the_comparison_no_replicate_is_left(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    with pytest.raises(ComparisonAborted):
        walked(monkeypatch, 5, 4, fails=fails)
    started = {what.split()[1] for what in Fake.said if what.startswith("start")}
    assert started <= {what.split()[1] for what in Fake.said if what.startswith("close")}
    assert Fake.said.count("known") == sum(what.startswith("look ahead") for what in Fake.said)


@pytest.mark.parametrize(("palindromes", "dry"), [(1, 2), (2, 4), (3, 3), (9, 9)])
def test_the_loop_is_measured_all_along_a_replicate(palindromes: int, dry: int) -> None:
    """Behind each first half of a palindrome, and where these are few behind each half; by either baseline. Every third
    palindrome is followed by rounds of all roles whose outputs are dropped.
    """
    driver = trial(Verifier())
    preset = replace(PRESETS["default"], palindromes=palindromes)
    options: Any = SimpleNamespace(protections=replace(ALL, adversarial=False), preset=preset, device="cpu")
    driver.session = replace(driver.session, options=options)
    requests: list[tuple[int, int]] = []
    timed = driver.result.rounds[0].timing
    driver.fill = driver.verify = driver.fetch = lambda *_, **__: None  # type: ignore[method-assign]
    strategy = CpuStrategy()
    strategy.readable = True
    driver.session.opened.update(goal="speed", converts=False, in_place=[])
    driver.run_round = lambda side, count, bits=0: requests.append((side, bits)) or timed  # type: ignore
    run = ReplicateRun(driver, strategy)
    turns = [run._half_palindrome(half, -1, 1) for half in run._half_palindromes()]
    sides = [side for side, bits in requests if bits & DUMMY]
    assert len(sides) == dry == len([turn for turn in turns if turn])
    assert set(sides) <= {Role.BASELINE, Role.BASELINE_REPEAT}
    dropped = Counter(side for side, bits in requests if bits & DROP)
    assert dropped == (dict.fromkeys(Role, palindromes // 3) if palindromes >= 3 else {})
    assert len(requests) - dry - dropped.total() == 6 * palindromes


def test_the_truth_of_a_call_is_computed_once_until_other_inputs_come() -> None:
    requests: list[dict[str, int]] = []
    truth: Any = SimpleNamespace(both=lambda inputs: (requests.append(inputs), len(requests)), left={})
    bank = InputBank(device="cpu", reference=truth)
    assert [bank.both(7, "plain", {"x": 1})[1] for _ in range(3)] == [1, 1, 1]
    assert bank.both(7, "zeros", {"x": 1})[1] == 2
    assert bank.both(8, "zeros", {"x": 1})[1] == 3
    bank.begin({}, 9, "plain", ())
    assert bank.both(8, "zeros", {"x": 1})[1] == 4
