"""Constants of one comparison, shared by all of its replicates, the modes in which programs are measured, and the wall
seconds of its phases.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent.kernel_cache import Kernels
from aisp_mcp.judge.parent.processes.placement import PlacementFactory
from aisp_mcp.judge.parent.processes.verifier_client import VerifierProcess
from aisp_mcp.judge.parent.telling import Telling
from aisp_mcp.judge.parent.timing.gpu.mode import Modes
from aisp_mcp.judge.protocol.layout import FILE, HOST
from aisp_mcp.judge.protocol.messages import CheckAnswer, MapAnswer, MapRequest, OpenAnswer, StageRequest
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.conclude import Terms


class ComparisonAborted(Exception):
    """A finding that ends the comparison and decides its verdict. code: of the flag."""

    def __init__(self, code: str, message: str, evidence: dict[str, Any]) -> None:
        super().__init__(message)
        self.code, self.message, self.evidence = code, message, evidence


class NoAnswerThere(ComparisonAborted):
    """A program raised, or is wrong, on unusual inputs on which the baseline has no answer: the comparison begins anew
    without them.
    """


@dataclass
class Imports:
    """Modules that the workers of memory benchmarks import before they are ready. added_bytes: of memory, that the
    candidate's add to a baseline.
    """

    baseline: list[str] = field(default_factory=list)
    candidate: list[str] = field(default_factory=list)
    added_bytes: int = 0

    def of(self, role: Role) -> list[str]:
        return self.candidate if role is Role.CANDIDATE else self.baseline


@dataclass(frozen=True)
class Session:
    """State that all replicates of a comparison share. fds: a pair for each rank of each worker. thorough: index of the
    replicate whose candidate sees all kinds of adversarial inputs. kernels: None where a program compiles none.
    as_quick_kinds: of inputs, on which a replicate gained as much as on plain ones.
    """

    pair: Pair
    options: Options
    opened: OpenAnswer
    placement: PlacementFactory
    verifier: VerifierProcess
    fds: list[tuple[int, int]]
    log: ChainLog
    random: random.Random
    timer: PhaseTimer
    telling: Telling
    thorough: int = 0
    modes: Modes = field(default_factory=Modes)
    imports: Imports = field(default_factory=Imports)
    kernels: Kernels | None = None
    as_quick_kinds: set[str] = field(default_factory=set)

    @property
    def is_tight(self) -> bool:
        """True if the processes must take turns with the device memory."""
        return bool(self.opened["layout"].get("tight"))

    @property
    def replicates_at_once(self) -> int:
        """Number of replicates whose processes have memory at a time."""
        return self.opened.get("replicates_at_once", 2)

    @property
    def ranks(self) -> int:
        """Ranks of each worker; workers of two replicates can exist at a time."""
        return len(self.fds) // (2 * len(Role))

    def files(self, worker: int) -> tuple[Path, ...]:
        """The folders of that worker's input files, if the specification has any."""
        return tuple(Path(root) / str(worker) for root in self.opened["workers"]["files_at"])

    @property
    def on_host(self) -> bool:
        """True if inputs are in host memory, so that a call begins there."""
        return any(spec["kind"] in (FILE, HOST) for spec in self.opened["layout"]["inputs"])

    def terms(self) -> Terms:
        """The terms that a verdict depends on."""
        return Terms(
            self.pair,
            self.options.preset,
            self.options.protections,
            self.opened,
            self.placement.level,
            self.placement.cores,
            self.options.margin,
            dict(self.timer.seconds),
        )

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the block's wall time towards that phase."""
        return self.timer.phase(name)

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """Send a request to the verifier and wait for its answer; the time counts towards the verb's phase."""
        with self.phase(verb):
            return self.verifier.ask(verb, **request)

    def check(self, worker: int, sample: list[int], stored: list[int] | None = None) -> CheckAnswer:
        """Compare these calls of the worker's last round. stored: calls with outputs in the arena; None for all."""
        return cast(CheckAnswer, self.ask("check", worker_id=worker, sample=sample, stored=stored))

    def stage(self, request: StageRequest) -> None:
        """Have the verifier draw inputs where no worker sees them."""
        self.ask("stage", **request)

    def map_memory(self, worker: int, request: MapRequest) -> MapAnswer:
        """Have the verifier open device memory of a worker; empty lists close it."""
        return cast(MapAnswer, self.ask("map_memory", worker_id=worker, **request))

    def probe_s(self, times: int = 1) -> float:
        """Seconds of the verifier's smallest kernel on the GPU, the best of several."""
        return float(self.ask("idle", times=times)["probe_s"])

    @property
    def adversarial(self) -> list[str]:
        """Kinds of adversarial inputs that the candidate is tried on: those for which the baseline has an answer."""
        if not self.options.protections.adversarial:
            return []
        return list(self.opened["facts"]["input_kinds"])

    @property
    def battery(self) -> int:
        """Seed of the inputs that decide whether a candidate is correct: the same in every comparison."""
        return self.options.battery_seed(self.pair.baseline)

    def params_seed(self, replicate: int) -> int:
        """Seed of a replicate's static tensors; those of the first one belong to the battery."""
        return self.random.getrandbits(48) if replicate else self.battery

    def new_seed(self) -> int:
        return self.random.getrandbits(48) if self.options.protections.fresh_inputs else 1


@dataclass
class PhaseTimer:
    """Wall seconds by phase; their sum never exceeds the elapsed time."""

    seconds: Counter[str] = field(default_factory=Counter)
    _inside: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the wall time of the block towards a phase; a nested block counts towards the outer phase."""
        if self._inside:
            yield
            return
        begin, self._inside = time.monotonic(), True
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begin  # type: ignore[assignment]
            self._inside = False
