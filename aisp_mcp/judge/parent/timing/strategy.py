"""Interface of the steps of a comparison that differ between CPU and GPU; implemented in cpu.py and gpu/strategy.py."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from aisp_mcp.judge.evidence import Overhead, RoundCost, RoundTiming
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import START_DEADLINE_S, Driver
from aisp_mcp.judge.protocol.roles import Role

Measure = Callable[[Callable[[], object] | None], RoundTiming]


class Strategy(ABC):
    """Device-specific steps. The hooks around a start do nothing unless they are overridden."""

    pilot_rounds: int  # of one call per role, beyond the first
    caches: tuple[str, ...]  # of kernels, compiled once and copied to all workers of a program
    round_bytes: int  # of a worker's inputs and outputs of one round, at most

    @abstractmethod
    def run_round(self, driver: Driver, role: Role, count: int, bits: int = 0) -> RoundTiming:
        """Run one round so that its outputs can be compared afterwards."""

    def with_outputs(self, driver: Driver, role: Role, measure: Measure) -> RoundTiming:
        """Run a round with measure() so that its outputs can be compared. measure() calls its argument at
        the answer.
        """
        return measure(None)

    @abstractmethod
    def dummy_round(self, driver: Driver, role: Role, count: int) -> RoundCost | None:
        """Overhead of a baseline's round of dummy calls; None if it is not needed."""

    def settle(self, driver: Driver, counts: dict[Role, int]) -> dict[Role, int]:
        """Bring the processes' memory to rest before the timed rounds. counts: of rounds whose inputs are there.
        Returns bytes of memory that each process did not have before.
        """
        return {}

    def drop_outputs(self, driver: Driver, counts: dict[Role, int]) -> None:
        """Time a round of each role whose outputs are released at once, for the verdict's interval; needed on a CPU."""

    @abstractmethod
    def measure_isolated_calls(self, driver: Driver) -> None:
        """Time isolated warm calls before the timed rounds."""

    @abstractmethod
    def finish(self, driver: Driver, singles: Sequence[RoundTiming], dummies: Sequence[RoundCost]) -> Overhead:
        """Run the remaining measurements, and return the overhead of the timed rounds."""

    def note_imports(self, session: Session) -> None:
        """Find the modules that a first call imports, before replicates start."""

    def look_ahead(
        self, session: Session, batch: Sequence[Driver], last: Driver | None
    ) -> AbstractContextManager[None]:
        """Compute answers of calls that will be compared, while processes start. last: the previous replicate."""
        return nullcontext()

    def wait_loaded(self, session: Session, batch: Sequence[Driver]) -> None:
        """Wait until all workers have loaded their libraries, and no process compiles kernels for them (`compile`)."""
        end_s = time.monotonic() + START_DEADLINE_S
        workers = [worker for driver in batch for worker in driver.workers.values()]
        if session.kernels:
            session.kernels.begin()
        with session.phase("start"):
            for worker in workers:
                worker.loaded(max(end_s - time.monotonic(), 0.0))
        if session.kernels:
            with session.phase("compile"):
                session.kernels.wait(workers, end_s - time.monotonic())

    def share_kernels(self, session: Session, batch: Sequence[Driver]) -> None:
        """Copy the kernels that are already compiled to the workers, before their programs run."""
        if session.kernels:
            files = [session.kernels.hand_on(driver.workers) for driver in batch]
            session.log.append("kernels", replicates=[driver.result.index for driver in batch], files=files)

    def trace(self, driver: Driver) -> None:
        """Run one round of the candidate under a profiler after all measurements; evidence only."""
