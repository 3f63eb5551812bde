"""State of one GPU measurement round, gated or not, in the mode that its program allows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import RoundTiming
from aisp_mcp.judge.parent.processes.confined import WorkerGone
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu.mode import Mode, Modes
from aisp_mcp.judge.presets import GPU_ROUNDS, MIN_COMPARED_PER_GPU_ROUND
from aisp_mcp.judge.protocol.messages import (
    GATE,
    ISOLATED,
    NO_COPY,
    STORE,
    TOUCH,
    WARM,
    DeviceAllocation,
    MapRequest,
    StageRequest,
    WatchAnswer,
)
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.protocol.shared_memory import ELAPSED_NS, ENDED, REFUSED
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED
from aisp_mcp.judge.verifier.handoff_gpu import HELD

# Randomly compared calls per back-to-back round and per isolated round; half of a round's calls are enough. No
# cheat gains more than the unchecked twentieth without two thirds of fifteen rounds of both kinds, a
# hundred comparisons: with 7 % wrong calls, it escapes once in 1,000.
COMPARED, ISOLATED_COMPARED = 6, 4
MAX_COMPARED = 2 * GPU_ROUNDS * (COMPARED + ISOLATED_COMPARED)  # of a replicate, in counted rounds of both kinds
PATIENCE_S = 0.2  # until all calls of a round wait at the gate; five times the usual
# For the device to become idle while calls wait at the gate. A program of several streams, which wait for each other,
# may keep it busy as long as they wait.
GATE_IDLE_S = 0.1
NOTHING_MAPPED: MapRequest = {"allocations": [], "addresses": [], "apart": False}


@dataclass
class DeviceMemory:
    """Device memory of a replicate's workers. mapped: the requests that the verifier has answered with success.
    announced_calls: calls of the candidate's last round that reported the addresses of its outputs.
    """

    driver: Driver
    mapped: dict[Role, MapRequest] = field(default_factory=dict)
    announced_calls: int = 0


@dataclass
class GpuRound:
    """One round: `count` calls of a role in a mode. isolated: inputs are handed over one call at a time.

    request: inputs that the verifier stages first; None if it already has. probe_s: time of the verifier's smallest
    kernel after the answer. seconds: of each isolated call, on the device's clock. checked: calls that were compared
    and correct.
    """

    memory: DeviceMemory
    role: Role
    modes: Modes
    gated: bool
    count: int
    isolated: bool = False
    request: StageRequest | None = None
    watched: bool = False
    probe_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    checked: int = 0

    @property
    def driver(self) -> Driver:
        return self.memory.driver

    @property
    def mode(self) -> Mode:
        """The program's mode, which may change during the round."""
        return self.modes.of(self.role)

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self.modes.change(self.role, mode)

    @property
    def worker(self) -> WorkerProcess:
        return self.driver.workers[self.role]

    @property
    def flags(self) -> int:
        """Bits of the protocol in candidate/main.py."""
        kind = (GATE if self.gated else 0) | (ISOLATED if self.isolated else 0) | (STORE if self.stored else 0)
        return WARM | (0 if self.mode.copies else NO_COPY) | kind

    @property
    def stored(self) -> bool:
        """Return True if the round's outputs are copied into the arena, but its inputs are not."""
        return not self.mode.copies and (self.mode.unreadable if self.isolated else bool(self.mode.stored))

    @property
    def elapsed_worker_s(self) -> float:
        """Duration of the round on the worker's own clock."""
        return self.worker.control.stats[ELAPSED_NS] / 1e9

    @property
    def capacity(self) -> int:
        """Number of calls whose inputs fit into the worker's own memory."""
        return self.worker.control.layout.own.capacity

    @property
    def compared(self) -> bool:
        """True for the candidate; the baseline is the specification."""
        return self.role is Role.CANDIDATE

    @property
    def deadline_s(self) -> float:
        return self.driver.deadline_s(self.role, self.count)

    @property
    def patience_s(self) -> float:
        """Longest time that the device alone may take for these calls, and until they wait at the gate."""
        return PATIENCE_S + 5 * self.driver.call_s[self.role] * self.count

    def addresses(self) -> list[int]:
        """Addresses of the outputs, as the worker reports them."""
        return list(self.worker.control.addresses[: self.count * len(self.worker.control.layout.outputs)])

    def sample(self) -> list[int]:
        """Random indices of the calls to compare."""
        count = min(
            ISOLATED_COMPARED if self.isolated else COMPARED, max(math.ceil(self.count / 2), MIN_COMPARED_PER_GPU_ROUND)
        )
        return self.driver.sample(self.count, count) if self.compared else []

    # --- the round

    def run_gated(self) -> RoundTiming | None:
        """Run a round with the gate; return None if it is impossible or does not count. Inputs are drawn while its
        calls are enqueued. Raises WorkerGone, ComparisonAborted.
        """
        refused, session = False, self.driver.session
        self.renew_memory()

        def write_inputs() -> bool:
            nonlocal refused
            staged.close()
            refused = self.refused() or not self.map_memory() or not self.write_inputs()
            return not refused

        with session.phase("gate"), ExitStack() as staged:
            if self.request:
                session.verifier.post("stage", **self.request)
                staged.callback(session.verifier.collect, "stage")
            timing = self.run(0, write_inputs)
        if timing is None and not refused:
            self.mode = self.mode.stalls() if self.isolated else self.mode.missed_gate(self.count)
        return timing

    def run_ungated(self, flags: int = 0) -> RoundTiming | None:
        """Run a round without the gate; return None if it is impossible or does not count. flags: as in run().

        The outputs must be at the addresses of the last round's, because they are copied as soon as the answer comes.
        Raises WorkerGone.
        """
        self.renew_memory()
        if self.request:
            self.driver.session.stage(self.request)
        direct = self.compared and not self.mode.copies and not self.stored
        if direct and self.count > self.memory.announced_calls:  # the last round had fewer calls
            self.announce()
            if self.refused():
                return None
        if not self.map_memory() or not self.write_inputs():
            return None
        before = self.addresses()
        timing = self.run(flags)
        if self.isolated and not self.seconds:
            raise WorkerGone("hang", f"{self.worker.name} answered, but its device does not finish")
        moved = direct and before != self.addresses()
        if timing is not None and (self.refused() or moved):
            self.mode = self.mode.on_busy_device(moved=moved, isolated=self.isolated)
            return None
        return timing

    def run(self, flags: int = 0, write_inputs: Callable[[], bool] | None = None) -> RoundTiming | None:
        """Run the round. flags: bits besides its own. write_inputs: called when the calls wait at the gate.

        Raises WorkerGone.
        """
        worker, deadline_s, bits = self.worker, self.deadline_s, self.flags | flags

        def ready() -> bool:
            if written := write_inputs is None or write_inputs():
                self.watch()
            return written

        worker.control.begin_handoff()
        if self.compared:
            self.memory.announced_calls = self.count
        with self.driver.session.phase("gate"):
            try:
                if self.gated:
                    still = self.all_handed_over if self.isolated else None
                    how = (self.count, deadline_s, bits, self.patience_s)
                    return worker.gated_round(*how, ready, self.await_end, still)
                ready()
                return worker.watched_round(self.count, deadline_s, bits, self.await_end)
            finally:
                if self.watched:  # it will not answer any more, or answered too early
                    worker.close()
                    with suppress(BenchmarkError):  # or it would mask the exception that ended the round
                        self.await_end()

    def announce(self) -> None:
        """Run a round that does not count; it reports the addresses of the outputs. Raises WorkerGone."""
        self.worker.run_round(self.count, self.deadline_s, WARM | NO_COPY)
        if self.compared:
            self.memory.announced_calls = self.count

    # --- memory and inputs

    def renew_memory(self) -> None:
        """Have the worker allocate its device memory anew, if processes take turns with it. Raises WorkerGone.

        A baseline returns its memory after each round, but a candidate's is still read then. So without this, a round
        of a baseline would contain the allocation, and one of a candidate would not.
        """
        if not self.driver.session.is_tight:
            return
        if self.memory.mapped.pop(self.role, None):  # no process may return what another one has mapped
            self.driver.session.map_memory(self.driver.number(self.role), NOTHING_MAPPED)
        self.worker.run_round(self.count, self.deadline_s, TOUCH)
        if self.compared:
            self.memory.announced_calls = 0

    def map_memory(self) -> bool:
        """Have the verifier open the memory of the inputs and, for a candidate, of all outputs, if needed."""
        if self.mode.copies:
            return True
        read = self.compared and not self.stored
        addresses = self.addresses() if read else []
        allocations = _needed(self.worker.control.read_allocations(), addresses)
        request: MapRequest = {"allocations": allocations, "addresses": addresses, "apart": self.isolated}
        if self.memory.mapped.get(self.role) == request:
            return True
        mapped = self.driver.session.map_memory(self.driver.number(self.role), request)
        if mapped["own"] and (mapped["whole"] or not read):
            self.memory.mapped[self.role] = request
            return True
        self.memory.mapped.pop(self.role, None)
        if mapped["own"]:
            self.mode = self.mode.with_unreadable(wording.OUTPUTS_UNREADABLE, self.isolated)
        else:
            self.mode = self.mode.with_copies(wording.INPUTS_UNWRITABLE)
        return False

    def write_inputs(self) -> bool:
        """Write the inputs, unless they are handed over one by one. Return False if the device was busy before, while
        calls wait at the gate, or afterwards: then a call that should wait for inputs has begun.
        """
        driver, session = self.driver, self.driver.session
        probe_s = session.probe_s()
        if not self.gated:
            driver.wait_idle(probe_s)
        elif driver.is_busy(driver.last_probe_s(probe_s, GATE_IDLE_S)):
            return self._discard()
        if self.isolated:
            return True
        answer = session.ask("write_staged", worker_id=driver.number(self.role), own=not self.mode.copies)
        return not driver.is_busy(answer["probe_s"]) or self._discard()

    def _discard(self) -> bool:
        """Count a round on a device that was not idle. Return True if there have been too many to discard this one."""
        self.mode = self.mode.on_busy_device(gated=self.gated)
        return self.mode.discarded > MAX_DISCARDED

    def refused(self) -> bool:
        """Return True if the program raised because inputs have other addresses than in prepare, which is
        legitimate.
        """
        was_refused = not self.mode.copies and bool(self.worker.control.stats[REFUSED])
        if was_refused:
            self.mode = self.mode.with_copies(wording.INPUTS_AT_ONE_ADDRESS)
        return was_refused

    # --- the verifier's part

    def watch(self) -> None:
        """Have the verifier wait for the answer and take the outputs at once, or do so for each call's answer."""
        request: dict[str, Any] = {"own": not self.mode.copies} if self.compared or self.isolated else {}
        if self.isolated:
            request |= {"taken": self.compared, "stored": self.stored}
        else:
            request |= {"pipe": self.worker.answers_at, "ended": self.worker.control.stats[ENDED]}
        deadline_s = self.patience_s if self.isolated and self.gated else self.deadline_s
        number, verifier = self.driver.number(self.role), self.driver.session.verifier
        verifier.post(self._verb, worker_id=number, deadline_s=deadline_s, **request)
        self.watched = True

    def await_end(self) -> float:
        """The clock when the answer had arrived and the device was done."""
        self.watched = False
        if self.isolated:  # there is no further answer
            self.worker.control.end_handoff()
        answer = self._collected()
        self.probe_s = float(answer.get("probe_s", 0.0))
        return float(answer["at_s"])

    def all_handed_over(self) -> bool:
        """Return True if all isolated calls got their inputs and finished."""
        self.watched = False
        self._collected()
        return bool(self.seconds)

    def _collected(self) -> WatchAnswer:
        """The verifier's answer. Raises WorkerGone if the worker's device blocks it."""
        try:
            answer = cast(WatchAnswer, self.driver.session.verifier.collect(self._verb))
        except BenchmarkError as error:
            if error.code != HELD:
                raise
            self.worker.close()
            raise WorkerGone("hang", f"{self.worker.name} keeps the verifier from using the device") from error
        self.seconds = answer.get("seconds", [])
        return answer

    @property
    def _verb(self) -> str:
        if self.isolated:
            return "handoff_gpu"
        return "snapshot" if self.compared else "probe"

    def outputs_right(self) -> bool:
        """Compare the outputs. Wrong ones end the comparison only in the mode that leaves no other explanation.

        Raises ComparisonAborted.
        """
        assert self.request is not None
        answer = self.driver.compare(self.role, self.request["sample"])
        if not answer["failure"]:
            self.checked = answer["checked"]
            return True
        if not self.mode.copies:
            self.mode = self.mode.with_copies(wording.wrong_without_copies(answer["failure"]))
        elif self.gated:
            self.mode = self.mode.without_gate(wording.wrong_behind_the_gate(answer["failure"]))
        else:
            self.driver.abort(self.role, answer)
        return False


def _needed(allocations: list[DeviceAllocation], addresses: list[int]) -> list[DeviceAllocation]:
    """The first allocation, which contains the inputs, and those that contain an address: opening one takes 1 ms."""
    starts = sorted(addresses)
    needed = allocations[:1]
    for begin, size, handle in allocations[1:]:
        first = bisect_left(starts, begin)
        if first < len(starts) and starts[first] < begin + size:
            needed.append((begin, size, handle))
    return needed
