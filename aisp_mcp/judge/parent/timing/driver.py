"""Primitives of one replicate: its three workers, and their rounds, inputs and comparisons."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any, TypeVar

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import Replicate, RoundTiming, SecondsByRole, merge_measures
from aisp_mcp.judge.parent.kernel_cache import names_a_compiler
from aisp_mcp.judge.parent.processes import group, process, procfs
from aisp_mcp.judge.parent.processes.cluster.spread import SpreadGroup
from aisp_mcp.judge.parent.processes.confined import Placement, WorkerGone
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.parent.session import ComparisonAborted, NoAnswerThere, Session
from aisp_mcp.judge.presets import draw_count, most_calls, sample_calls
from aisp_mcp.judge.protocol.layout import FLUSH_BYTES
from aisp_mcp.judge.protocol.messages import ARGUMENTS, NO_COPY, CheckAnswer, WorkerSetup
from aisp_mcp.judge.protocol.module_loader import common_of
from aisp_mcp.judge.protocol.roles import BASELINES, Role, worker_number
from aisp_mcp.judge.protocol.shared_memory import map_file

START_DEADLINE_S = 120.0
REBUILDS = 2.0  # times the compilation, for a worker that cannot use what was compiled
FIRST_CALL_S = 30.0  # on a CPU, of a candidate that names no compiler
IDLE_DEADLINE_S, BUSY_FACTOR, MIN_BUSY_S = 1.0, 10.0, 0.0003
# Share of a replicate's time in which arguments are compared with what they were; chosen: it hardly shows.
ARGUMENTS_SHARE = 0.03
MUCH_FASTER = 0.6  # of the baseline's time per call: speeds of a core differ by a third

T = TypeVar("T")


class Driver:
    """Three workers of one replicate. Methods that let a worker run raise ComparisonAborted if it fails or is wrong."""

    def __init__(self, session: Session, index: int) -> None:
        self.session = session
        self.result = Replicate(index)
        self.workers: dict[Role, WorkerProcess] = {}
        self.call_s: SecondsByRole = {}  # on the parent's clock, including the overhead of a round
        self.claimed_s: SecondsByRole = {}  # on the worker's own clock
        self.filled: dict[Role, int] = {}  # inputs of the next round of each role
        self._setups: dict[Role, WorkerSetup] = {}
        self._placements: dict[Role, Placement] = {}
        self.rehearsal: Driver | None = None  # ended processes of the rehearsal of a cold start
        self._arenas: dict[Role, mmap] = {}
        self._at_rest = set[Role]()  # roles whose last round left its outputs in the worker's own memory
        self._asked = False
        self._unfilled: dict[str, Any] = {}  # request for inputs that are written just before each round
        self._mode = "plain"  # kind of the last inputs
        self._begun, self._arguments_s = time.monotonic(), 0.0  # when it began, and seconds of comparing arguments

    def number(self, role: Role) -> int:
        """Number of the role's worker at the verifier, among those of the replicates that have memory at a time."""
        return worker_number(self.result.index % self.session.replicates_at_once, role)

    # --- start and end

    def start(self) -> None:
        """Start the three processes concurrently. They load their libraries before they read their set-up."""
        for role in Role:
            self.launch(role)

    def launch(self, role: Role) -> None:
        first = self.number(role) * self.session.ranks
        fds = self.session.fds[first : first + self.session.ranks]
        fresh = self.session.opened["cold"].get("from") == "process"
        what = role.label, dict(self.setup(role)), fds, self.placement(role)
        if relays := self.session.placement.relays:
            self.workers[role] = SpreadGroup(*what, relays, self.number(role), self.result.index)
        else:
            self.workers[role] = group.start(*what, fresh)

    def placement(self, role: Role) -> Placement:
        """Folder, environment and cores of the role's process."""
        if role not in self._placements:
            name = f"replicate-{self.result.index}-{role.number}"
            files = self.session.files(self.number(role))
            self._placements[role] = self.session.placement.make(name, self.result.index, files)
        return self._placements[role]

    def setup(self, role: Role) -> WorkerSetup:
        session, options = self.session, self.session.options
        if role not in self._setups:
            self._setups[role] = WorkerSetup(
                path=str(session.pair.path if role is Role.CANDIDATE else session.pair.baseline),
                common=self._common(role),
                baseline=role is not Role.CANDIDATE,
                size=options.size,
                device=options.device,
                threads=len(session.placement.cpus),
                flush_bytes=FLUSH_BYTES,
                layout=session.opened["layout"],
                output_rules={**session.opened["output_rules"], "contract": options.protections.contract},
                imports=session.imports.of(role),
                freeze=options.protections.freeze,
                forbidden=list(options.policy.forbidden) if role is Role.CANDIDATE else [],
                rules=list(options.policy.rules) if role is Role.CANDIDATE else [],
            )
        return self._setups[role]

    def _common(self, role: Role) -> str:
        """Path of the file shared by baseline and candidate, as the process sees it: a candidate may be in another
        folder. Over nodes, each node copies it for its own ranks.
        """
        path = common_of(self.session.pair.baseline)
        copied = role is Role.CANDIDATE and not self.session.placement.relays
        return self.placement(role).lend(path) if copied else str(path)

    def post_attach(self) -> None:
        """Ask for what attach() collects. The replicate before the last one must have ended."""
        self._asked, session, numbers = True, self.session, [self.number(role) for role in Role]
        for number in numbers:
            session.verifier.post("attach", worker_id=number)
        session.verifier.post("params", worker_ids=numbers, seed=session.params_seed(self.result.index))

    def attach(self) -> None:
        """Make shared memory with new static tensors. The replicate before the last one must have ended."""
        if not self._asked:
            self.post_attach()
        with self.session.phase("attach"):
            for role in Role:
                self.setup(role)["ipc"] = self.session.verifier.collect("attach")["ipc"]
            self.session.verifier.collect("params")

    def prepare(self) -> None:
        """Send the set-ups: from here on, the programs run."""
        for role, worker in self.workers.items():
            worker.prepare(dict(self.setup(role)))

    def wait_ready(self) -> None:
        """Wait until all three are prepared and stopped. A second call does nothing."""
        if self.result.prepare_s:
            return
        for role, worker in self.workers.items():
            self.guarded(role, lambda worker=worker: worker.ready(self._start_s))  # type: ignore[misc]
        peak = self.result.host_peak
        for role, worker in self.workers.items():
            self.result.prepare_s[role] = procfs.account([worker.pid]).cpu_s
            peak[role] = self.guarded(role, worker.settle_memory)
        # Memory that an idle candidate holds beyond the baselines' counts as memory of its calls.
        most = max(peak[role] for role in BASELINES) + self.session.imports.added_bytes
        peak[Role.CANDIDATE] = min(peak[Role.CANDIDATE], most)

    def close(self) -> None:
        """End all three processes concurrently: a driver takes a while to release each."""
        for worker in self.workers.values():
            worker.kill()
        for worker in self.workers.values():
            worker.close()

    # --- rounds

    def guarded(self, role: Role, action: Callable[[], T]) -> T:
        """Return the action's result; a worker that cannot run any more rounds ends the comparison.

        Raises ComparisonAborted, or BenchmarkError NO_MEMORY.
        """
        try:
            return action()
        except WorkerGone as gone:
            gone.reject_lack_of_memory(role.label, self.workers[role].oom_kills)
            prefix = "baseline" if role is not Role.CANDIDATE else "incorrect" if gone.code == "raised" else "candidate"
            where = f" on {self._mode} inputs" if gone.code == "raised" and self._mode != "plain" else ""
            message = f"{gone.message}{where}: {gone.text[:300]}" if gone.text else gone.message
            aborted = NoAnswerThere if where and self._lacks_answer(role) else ComparisonAborted
            raise aborted(f"{prefix}_{gone.code}", message, self._evidence(role)) from gone

    def _lacks_answer(self, role: Role, wrong_call: int | None = None) -> bool:
        return bool(self.session.ask("lacks_answer", worker_id=self.number(role), wrong_call=wrong_call)["lacks"])

    def run_round(
        self, role: Role, count: int, bits: int = 0, at_done: Callable[[], object] | None = None
    ) -> RoundTiming:
        """Run `count` calls on the current inputs.

        bits: of the protocol in candidate/main.py. at_done: called when the worker has answered, before it is stopped.
        """
        if self._unfilled:
            self._fill({role: count}, self._unfilled)
        deadline_s, worker = self.deadline_s(role, count), self.workers[role]
        self.note_outputs(role, at_rest=bool(bits & NO_COPY))
        with self.session.phase("measure" if role in self.call_s else "first call"):
            return self.guarded(role, lambda: worker.run_round(count, deadline_s, bits, at_done))

    def deadline_s(self, role: Role, count: int) -> float:
        """Longest allowed time of a round; the first one may compile for minutes."""
        if role in self.call_s:
            return 20.0 + 50 * self.call_s[role] * count
        if role is not Role.CANDIDATE or self.session.options.device != "cpu" or names_a_compiler(self.session.pair):
            return self._start_s
        return min(FIRST_CALL_S + 50 * self.call_s.get(Role.BASELINE, math.inf) * count, START_DEADLINE_S)

    @property
    def _start_s(self) -> float:
        """Longest allowed time to prepare a program, and of its first call. A program that writes its sources into a
        new folder each time compiles them again.
        """
        return START_DEADLINE_S + REBUILDS * self.session.timer.seconds["compile"]

    def learn(self, role: Role, timing: RoundTiming) -> None:
        """Update the shortest known time per call, which disturbed rounds do not change."""
        self.call_s[role] = min(timing.running_s / timing.count, self.call_s.get(role, math.inf))
        self.claimed_s[role] = min(min(timing.durations_ns) / 1e9, self.claimed_s.get(role, math.inf))

    def most_calls(self, role: Role) -> int:
        """The most calls of the role's next round: as many as of the baselines, or more for a much faster candidate.

        The first call of a round is the slowest, so roles of about the same speed must have it equally often. The
        workers' own clocks decide this, since the start of a round may take longer than its calls. A candidate that
        manipulates its clock only gets another number of calls, and at most as many as fill twice the time.
        """
        call_s = min(self.claimed_s[role] for role in BASELINES)
        if role is Role.CANDIDATE and self.claimed_s[role] < MUCH_FASTER * call_s:
            call_s = max(self.claimed_s[role], self.call_s[role] / 2)
        preset = self.session.options.preset
        most = min(self.session.opened["layout"]["capacity"], preset.max_calls)
        return most_calls(call_s, preset.round_s, most)

    def most_calls_of_all(self) -> dict[Role, int]:
        return {role: self.most_calls(role) for role in Role}

    def count(self, role: Role) -> int:
        """Number of calls of the role's next round."""
        return draw_count(self.most_calls(role), self.session.random)

    def counts(self) -> dict[Role, int]:
        return {role: self.count(role) for role in Role}

    # --- inputs and outputs

    def as_many(self, counts: dict[Role, int]) -> dict[Role, int]:
        """As many inputs for each role, where arguments are made of them, so that this can be compared: a faster
        candidate has more calls, and arguments of many calls take longer each.
        """
        return dict.fromkeys(counts, max(counts.values())) if self.session.opened["converts"] else counts

    def fill(
        self, counts: dict[Role, int], mode: str = "plain", sample: Sequence[int] = (), battery: int | None = None
    ) -> None:
        """Write new inputs, and poison, for the next round of these roles; just before each round where they use the
        same memory. sample: calls to compare. battery: the seed of inputs that decide whether a program is correct;
        None for fresh ones.
        """
        self.filled = counts
        fixed = battery is not None
        seed = self.session.new_seed() if battery is None else battery
        request = {"seed": seed, "mode": mode, "sample": sample, "battery": fixed}
        self._mode = mode
        if self.session.is_tight:
            self._unfilled = request
        else:
            self._fill(counts, request)

    def _fill(self, counts: dict[Role, int], request: dict[str, Any]) -> None:
        numbered = {self.number(role): count for role, count in counts.items()}
        answer = self.session.ask("fill", counts=numbered, **request)
        if "probe_s" in answer:
            self.wait_idle(answer["probe_s"])

    def wait_idle(self, probe_s: float) -> None:
        """Wait until the device is idle while all workers are stopped, and record it if it stays busy."""
        if self.is_busy(last_s := self.last_probe_s(probe_s, IDLE_DEADLINE_S)):
            self.result.device.busy_probes_s.append(last_s)

    def last_probe_s(self, probe_s: float, patience_s: float) -> float:
        """Time the verifier's smallest kernel until the device is idle, or that long. probe_s: its time just now."""
        end = time.monotonic() + patience_s
        while self.is_busy(probe_s) and time.monotonic() <= end:
            probe_s = self.session.probe_s()
        return probe_s

    def is_busy(self, probe_s: float) -> bool:
        """Return True if the verifier's smallest kernel took so long that another process must be using the device."""
        return probe_s > max(BUSY_FACTOR * self.session.opened["probe_s"], MIN_BUSY_S)

    def sample(self, count: int, size: int) -> list[int]:
        """Random indices of the calls of a round to compare."""
        return sample_calls(count, size, self.session.random)

    def verify(self, role: Role, sample: list[int], timed: bool = False) -> None:
        """Check guards and poison of every call, and all elements of the sampled calls.

        The baseline is the specification: its outputs are compared once per process, its guards and poison always.
        """
        if timed and not self.session.options.protections.timed_verification:
            return
        if role is Role.CANDIDATE and sample and not (timed and self.session.opened["goal"] == "memory"):
            self._refuse_changed_argument(self.session.random.choice(sample))
        answer = self.compare(role, sample)
        if role is Role.CANDIDATE:
            self.result.checked += answer["checked"] if timed else 0
            self.result.worst_ratio = max(self.result.worst_ratio, answer["ratio"] or 0.0)
            merge_measures(self.result.measures, answer.get("measures", {}))
            share, where = answer.get("edge", self.result.edge)
            self.result.edge = max(self.result.edge, (share, where))
        if answer["failure"]:
            is_value = answer["code"] == "incorrect_output" and self._mode != "plain"
            self.abort(role, answer, is_value and self._lacks_answer(role, sample[answer["checked"] - 1]))

    def _refuse_changed_argument(self, call: int) -> None:
        """End the comparison if that call of the candidate's last round changed an argument of Python's own, such as a
        list, that the baseline leaves as it was. Raises ComparisonAborted.
        """
        session, role, begin = self.session, Role.CANDIDATE, time.monotonic()
        is_due = self._arguments_s <= ARGUMENTS_SHARE * (begin - self._begun)
        if not (is_due and session.opened["converts"] and session.options.protections.outside):
            return
        worker, deadline_s = self.workers[role], self.deadline_s(role, call + 1)
        self.guarded(role, lambda: worker.run_round(call + 1, deadline_s, ARGUMENTS))
        self._arguments_s += time.monotonic() - begin
        place = worker.control.read_text()
        if place and not session.ask("changes_arguments", worker_id=self.number(role), call=call)["changes"]:
            message = f"call {call}: the argument {place} was changed; the baseline leaves it as it was"
            raise ComparisonAborted("input_mutated", message, self._evidence(role))

    def note_outputs(self, role: Role, at_rest: bool) -> None:
        """Record whether the role's next round leaves its outputs in the worker's own memory."""
        (self._at_rest.add if at_rest else self._at_rest.discard)(role)

    def fetch(self, role: Role, calls: Sequence[int]) -> None:
        """Bring the outputs of these calls of the role's last round into the arena."""
        if role not in self._at_rest:
            return
        worker = self.workers[role]

        def fetched() -> None:
            try:
                process.fetch(worker.pid, worker.control, self.arena(role), calls)
            except OSError as refused:
                message = f"{worker.name}'s outputs are not at the addresses that it reported: {refused.strerror}"
                raise WorkerGone("unreadable", message) from refused

        with self.session.phase("fetch"):
            self.guarded(role, fetched)
        self._refuse_overlaps(role, worker.control.addresses_of(calls))

    def _refuse_overlaps(self, role: Role, addresses: Sequence[int]) -> None:
        """End the comparison if outputs of one call share memory and the baseline's do not: who changes one of them
        changes the other. Raises ComparisonAborted.
        """
        is_one_process = self.session.placement.ranks == 1  # addresses of several may be equal
        if role is not Role.CANDIDATE or self.session.opened["output_rules"]["shares_outputs"] or not is_one_process:
            return
        if names := self.workers[role].control.layout.overlapping_outputs(addresses):
            message = f"the outputs {names[0]} and {names[1]} of a call share memory"
            raise ComparisonAborted("shares_output", message, self._evidence(role))

    def compare(self, role: Role, sample: list[int]) -> CheckAnswer:
        """The verifier's findings on the role's last round."""
        self.fetch(role, sample)
        try:
            answer = self.session.check(self.number(role), sample, sample if role in self._at_rest else None)
        except BenchmarkError as error:
            if error.code != "RAISED" or self._mode == "plain":
                raise
            raise NoAnswerThere("baseline_raised", error.message, self._evidence(role)) from error
        self.guarded(role, self.workers[role].refuse_work_outside)
        return answer

    def abort(self, role: Role, answer: CheckAnswer, lacks_answer: bool = False) -> None:
        """End the comparison because outputs are wrong. lacks_answer: on inputs on which none is right. Raises
        ComparisonAborted.
        """
        code = answer["code"] if role is Role.CANDIDATE else f"baseline_{answer['code']}"
        aborted = NoAnswerThere if lacks_answer else ComparisonAborted
        raise aborted(str(code), str(answer["failure"]), self._evidence(role))

    def _evidence(self, role: Role) -> dict[str, object]:
        return {"side": role.label, "replicate": self.result.index}

    def arena(self, role: Role) -> mmap:
        """The role's inputs and outputs in host memory, mapped once."""
        if role not in self._arenas:
            _, arena = self.session.fds[self.number(role)]
            self._arenas[role] = map_file(arena, self.workers[role].control.layout.arena_bytes)
        return self._arenas[role]
