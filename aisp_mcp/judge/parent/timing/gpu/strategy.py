"""Steps of a comparison on a GPU: snapshots of outputs, work that overlaps with starts, and the traced round."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from aisp_mcp.judge.evidence import Overhead, RoundCost, RoundTiming
from aisp_mcp.judge.parent.processes.placement import KERNELS
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu import schedule
from aisp_mcp.judge.parent.timing.gpu.round import COMPARED, MAX_COMPARED
from aisp_mcp.judge.parent.timing.strategy import Measure, Strategy
from aisp_mcp.judge.protocol.messages import TRACE
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.estimate import fit_overhead

TRACED_CALLS, TRACED_CALL_S = 8, 0.02  # the kernel records of a longer call take many seconds
# Work after an answer that is worth a flag: seconds, and a share of the round. Another process's first kernel takes 0.2
# to 0.32 ms after a program that has waited for its device (H100), because the processes take turns.
LATE_S, LATE_SHARE = 1e-3, 0.01
LOOK_AHEAD_S = 1.0  # for answers computed ahead, while processes start


class GpuStrategy(Strategy):
    """Rounds of a GPU. Inputs and outputs are in device memory of the verifier."""

    pilot_rounds = 1  # separate rounds find the cost of one
    caches = KERNELS
    round_bytes = 8 << 30  # the verifier takes a 24th of the free device memory if that is less

    def run_round(self, driver: Driver, role: Role, count: int, bits: int = 0) -> RoundTiming:
        return self.with_outputs(driver, role, partial(driver.run_round, role, count, bits))

    def with_outputs(self, driver: Driver, role: Role, measure: Measure) -> RoundTiming:
        """Run a round whose outputs the verifier copies at the answer, before the worker is stopped.

        A stopped process does not stop its device: the parent's clock runs until the device is done, whether the work
        after the answer is worth a flag or not.
        """
        session, ended = driver.session, driver.result.ended_rounds
        ended[role] = ended.get(role, 0) + 1
        timing = measure(partial(session.verifier.post, "snapshot", worker_id=driver.number(role)))
        with session.phase("snapshot"):
            probe_s = session.verifier.collect("snapshot")["probe_s"]
        if not driver.is_busy(probe_s):
            return timing
        if probe_s > max(LATE_S, LATE_SHARE * timing.elapsed_s):
            late_rounds = driver.result.device.late_rounds
            late_rounds[role] = late_rounds.get(role, 0) + 1
        return replace(timing, elapsed_s=timing.elapsed_s + probe_s)

    def dummy_round(self, driver: Driver, role: Role, count: int) -> RoundCost | None:
        return None

    def measure_isolated_calls(self, driver: Driver) -> None:
        """Nothing to do: isolated calls are measured with the stream gate, after the timed rounds."""

    def finish(self, driver: Driver, singles: Sequence[RoundTiming], dummies: Sequence[RoundCost]) -> Overhead:
        schedule.measure(driver)
        return fit_overhead([*(single.cost for single in singles), *dummies])

    @contextmanager
    def look_ahead(self, session: Session, batch: Sequence[Driver], last: Driver | None) -> Iterator[None]:
        """Compute answers of calls that will be compared: with a slow baseline, they would take as long as all rounds
        together. This ends before a worker's program runs, which may tune itself. The previous replicate, `last`, shows
        how many will be needed.
        """
        if not session.options.protections.fresh_inputs or session.is_tight:
            yield
            return
        number = session.options.preset.compared + MAX_COMPARED
        if last:
            number = min(number, last.result.checked + COMPARED)
        baselines = [driver.number(Role.BASELINE) for driver in batch]
        request = {"worker_ids": baselines, "number": number, "seconds": LOOK_AHEAD_S}
        session.verifier.post("look_ahead", seed=session.random.getrandbits(48), **request)
        yield
        with session.phase("look_ahead"):  # only the time beyond the start of the processes
            answer = session.verifier.collect("look_ahead")
        session.log.append("ahead", replicates=[driver.result.index for driver in batch], **answer)

    def share_kernels(self, session: Session, batch: Sequence[Driver]) -> None:
        super().share_kernels(session, batch)
        if session.kernels and not batch[0].result.index:  # one began when the idle device was probed
            session.opened["probe_s"] = min(session.opened["probe_s"], session.probe_s(times=3))

    def trace(self, driver: Driver) -> None:
        if driver.call_s[Role.CANDIDATE] > TRACED_CALL_S:
            return
        count, device = min(TRACED_CALLS, driver.session.opened["layout"]["capacity"]), driver.result.device
        driver.fill({Role.CANDIDATE: count})
        self.run_round(driver, Role.CANDIDATE, count, TRACE)
        driver.verify(Role.CANDIDATE, driver.sample(count, 1))
        with suppress(ValueError):
            activity = json.loads(driver.workers[Role.CANDIDATE].control.read_text())
            if isinstance(activity, dict):
                device.activity = {str(k)[:40]: v for k, v in activity.items() if isinstance(v, int)}
        driver.session.log.append("activity", replicate=driver.result.index, count=count, found=device.activity)
