"""Correctness over sizes: candidates run in separate workers, and the verifier compares every output. No timing.

A configuration is one candidate at one size. Each has a fresh worker process, confined like those of a comparison, and
one call for each kind of inputs; outputs, guards and poison are checked as in a timed round. An engine serves two
traces instead, and all its tokens are compared. A candidate with several ranks has one worker per rank, and the outputs
of each rank are checked.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from aisp_mcp.bench.sizes import Number, Sizes
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import distributed
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.opening import memory_files
from aisp_mcp.judge.parent.processes import group, placement, verifier_client
from aisp_mcp.judge.parent.processes.confined import Placement, WorkerGone
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.parent.timing.serving import Delivery, WrongEmissionError
from aisp_mcp.judge.protocol.layout import FLUSH_BYTES
from aisp_mcp.judge.protocol.messages import WorkerSetup
from aisp_mcp.judge.protocol.module_loader import common_of
from aisp_mcp.judge.protocol.roles import Role, worker_number
from aisp_mcp.judge.protocol.token_ring import TokenRing
from aisp_mcp.judge.verdict.serving import RESOLUTION_S

MAX_CONFIGURATIONS = 200  # per verifier, which has two open descriptors for each
START_S, CALL_S = 120.0, 120.0
ODD = (1, 7, 33)  # sizes that no tile divides
Grid = Mapping[str, Sequence[Number]]


@dataclass
class Found:
    """Findings for one configuration. modes: kinds of inputs that were compared; worst: in units of the baseline's own
    error.
    """

    modes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    worst: float = 0.0
    missing: str = ""


def configurations(grid: Grid, boundaries: bool) -> Iterator[dict[str, Number]]:
    """All points of the grid, then each integer size in turn at odd values and just beyond the grid's ends."""
    seen = set[tuple[Number, ...]]()
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    for name in grid if boundaries else ():
        values = [value for value in grid[name] if isinstance(value, int)]
        ends = (min(values) - 1, max(values) + 1) if values else ()
        points += [points[0] | {name: value} for value in (*(ODD if values else ()), *ends) if value > 0]
    for point in points:
        if (key := tuple(point.values())) not in seen:
            seen.add(key)
            yield point


class _NoAnswerThere(Exception):
    """A candidate raised or was wrong on unusual inputs on which the baseline has no answer."""


class Fuzzer:
    """A verifier for one specification, and workers for its candidates. Use it as a context manager."""

    def __init__(self, baseline: Path, options: Options, configurations: int, ranks: int = 1) -> None:
        self.baseline, self.options, self.ranks = baseline, options, ranks
        self._random, self._stack, self._number = random.Random(os.urandom(32)), ExitStack(), 0
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="aisp-", ignore_cleanup_errors=True))
        level = placement.usable_level(options.isolation, options.device)
        self._placements = placement.PlacementFactory(
            Path(folder).resolve(), options.device, level, placement.measuring_cpus(ranks), ranks=ranks
        )
        self._fds = [memory_files() for _ in range(configurations * ranks)]
        for fd in itertools.chain.from_iterable(self._fds):
            self._stack.callback(os.close, fd)
        # Each configuration counts as a replicate, so that it has its own inputs.
        numbered = [fd for at in range(configurations) for _ in Role for pair in self._of(at) for fd in pair]
        self._verifier = verifier_client.started(numbered, self._placements.make("verifier"))
        self._stack.callback(self._verifier.close)

    def __enter__(self) -> Fuzzer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _of(self, number: int) -> list[tuple[int, int]]:
        """Control block and arena of each rank of that configuration's worker."""
        return self._fds[number * self.ranks : (number + 1) * self.ranks]

    def sizes(self) -> tuple[dict[str, Number], list[str]]:
        """(values that can be replaced, names of those set by the presets). Raises BenchmarkError."""
        answer = self._verifier.ask("sizes", path=str(self.baseline), size=self.options.size)
        return answer["values"], answer["varied"]

    def test(self, candidate: Path, size: Sizes) -> Found:
        """Run the candidate on all kinds of inputs. Raises BenchmarkError if the specification cannot be used."""
        if missing := distributed.lacks(self.baseline, size.text()):
            return Found(missing=missing)
        number, self._number = self._number, self._number + 1
        try:
            return self._tested(candidate, size, number)
        except _NoAnswerThere:
            return self._tested(candidate, size, number, redraws=True)

    def _tested(self, candidate: Path, size: Sizes, number: int, redraws: bool = False) -> Found:
        opened = self._verifier.ask(
            "open",
            path=str(self.baseline),
            size=size.text(),
            device=self.options.device,
            protections=asdict(self.options.protections),
            seed=self._seed(),
            budget=1,
            round_s=0.0,
            cpus=sorted(os.sched_getaffinity(0)),
            ranks=self.ranks,
            redraws=redraws,
        )
        if "missing" in opened:
            return Found(missing=", ".join(opened["missing"]))
        worker_placement = self._placements.make(f"worker-{number}{'-again' if redraws else ''}")
        setup = self._setup(candidate, size, opened, worker_placement)
        worker = group.start("candidate", dict(setup), self._of(number), worker_placement)
        findings = Found()
        try:
            worker_id = worker_number(number, Role.CANDIDATE)
            setup["ipc"] = self._verifier.ask("attach", worker_id=worker_id)["ipc"]
            self._verifier.ask("params", worker_ids=[worker_id], seed=self._seed())
            worker.prepare(dict(setup))
            worker.ready(START_S)
            if "serving" in opened:
                self._traces(worker, worker_id, findings)
            else:
                self._rounds(worker, worker_id, opened["facts"]["input_kinds"], findings, redraws)
        except WorkerGone as gone:
            gone.reject_lack_of_memory(worker.name, worker.oom_kills)
            findings.errors.append(_sentence(gone))
        except WrongEmissionError as error:
            findings.errors.append(str(error))
        finally:
            worker.close()
        return findings

    def _setup(self, candidate: Path, size: Sizes, opened: dict[str, Any], worker_placement: Placement) -> WorkerSetup:
        return WorkerSetup(
            path=str(candidate),
            common=worker_placement.lend(common_of(self.baseline)),
            baseline=False,
            size=size.text(),
            device=self.options.device,
            threads=len(self._placements.cpus),
            flush_bytes=FLUSH_BYTES,
            layout=opened["layout"],
            output_rules={**opened["output_rules"], "contract": True},
            imports=[],
            freeze=True,
        )

    def _rounds(
        self, worker: WorkerProcess, worker_id: int, kinds: Sequence[str], findings: Found, redraws: bool
    ) -> None:
        """One call for each kind of inputs. Raises _NoAnswerThere unless these are drawn again."""

        def lacks_answer(mode: str, wrong_call: int | None = None) -> bool:
            if mode == "plain" or redraws:
                return False
            return bool(self._verifier.ask("lacks_answer", worker_id=worker_id, wrong_call=wrong_call)["lacks"])

        for mode in ("plain", *kinds, "plain"):  # again, because a program may keep what it was given first
            if mode in findings.modes and findings.errors:
                break
            self._verifier.ask("fill", counts={worker_id: 1}, seed=self._seed(), mode=mode, sample=[0])
            try:
                self._call(worker, worker_id)
            except WorkerGone as gone:
                if gone.code == "raised" and lacks_answer(mode):
                    raise _NoAnswerThere from gone
                raise
            try:
                answer = self._verifier.ask("check", worker_id=worker_id, sample=[0])
            except BenchmarkError as error:
                if error.code == "RAISED" and lacks_answer(mode):
                    raise _NoAnswerThere from error
                raise
            if answer["code"] == "incorrect_output" and lacks_answer(mode, wrong_call=0):
                raise _NoAnswerThere
            findings.modes += [mode] if mode not in findings.modes else []
            findings.worst = max(findings.worst, answer["ratio"] or 0.0)
            if answer["failure"]:
                findings.errors.append(f"{mode}: {answer['failure']}")

    def _traces(self, worker: WorkerProcess, worker_id: int, findings: Found) -> None:
        """Give an engine all requests at once, then one by one."""
        for mode, together in (("at once", True), ("one by one", False)):
            requests = self._verifier.ask("draw_trace", seed=self._seed())["requests"]
            delivery = Delivery(TokenRing(worker.control), requests, [0.0] * len(requests) if together else None)
            worker.served_round(len(requests), CALL_S, delivery.look, RESOLUTION_S)
            findings.modes.append(mode)
            if failure := delivery.missing() or self._token_failure(worker_id, requests, delivery, findings):
                findings.errors.append(f"{mode}: {failure}")

    def _token_failure(self, worker_id: int, requests: Any, delivery: Delivery, findings: Found) -> str | None:
        """The first wrong token of a trace, in words; records the worst error in findings."""
        answer = self._verifier.ask("check_trace", worker_id=worker_id, requests=requests, answers=delivery.tokens)
        findings.worst = max(findings.worst, answer["ratio"] or 0.0)
        failure: str | None = answer["failure"]
        return failure

    def _call(self, worker: WorkerProcess, worker_id: int) -> None:
        """Run one call; on a GPU its outputs are copied when it answers, except for ranks. Raises WorkerGone."""
        if self.options.device == "cpu" or self.ranks > 1:
            worker.run_round(1, CALL_S)
            return
        posted = list[None]()

        def snapshot() -> None:
            self._verifier.post("snapshot", worker_id=worker_id)
            posted.append(None)

        try:
            worker.run_round(1, CALL_S, 0, snapshot)
        finally:
            if posted:
                self._verifier.collect("snapshot")

    def _seed(self) -> int:
        return self._random.getrandbits(48)


def _sentence(gone: WorkerGone) -> str:
    """Why the worker ended. An exception's text begins with its type, and a log ends with the reason."""
    text = gone.text[:300] if gone.code == "raised" else gone.text[-300:]
    return f"{gone.message}: {text}" if text else gone.message


def grid_of(given: Grid, values: Mapping[str, Number], varied: Sequence[str]) -> dict[str, list[Number]]:
    """The grid to try: the given one, or the integer sizes of the presets at their values. Raises BenchmarkError."""
    if unknown := [name for name in given if name not in values]:
        hint = f"Its sizes are {', '.join(values)}." if values else None
        raise BenchmarkError("BAD_SIZE", f"The specification has no size '{unknown[0]}'.", hint)
    if given:
        return {name: list(several) for name, several in given.items()}
    return {name: [values[name]] for name in varied if isinstance(values[name], int)}
