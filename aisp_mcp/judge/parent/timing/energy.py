"""Sequence of one replicate of goal "energy": timed calls, then calls during which the device's energy counter is read.

The timed part verifies the program and records its time; the energy counter determines the verdict. A window of a role
is half a second of ordinary rounds: secret inputs, new for each call, outputs compared, everything stopped in between.
The parent reads the counter just after it has changed, before and after each round, so that its step size causes no
error. The idle power times the time between both readings is subtracted. Idle power is the mean of one reading before
all windows and one after: roles are mirrored around the middle, so a steady drift cancels. On a GPU, CPU time beyond
the baseline's is charged to the candidate, because the GPU's counter does not show work moved to the host.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import fmean

from aisp_mcp.errors import BenchmarkError, Unavailable
from aisp_mcp.judge.evidence import Replicate, RoundTiming
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.presets import LATIN_SQUARE
from aisp_mcp.judge.protocol.messages import WARM, OpenAnswer
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.system.gpu import energy

WINDOW_S, IDLE_S = 0.5, 0.5  # of calls per role and replicate; of idling before and after them
MAX_ROUNDS = 400  # of half a window
COMPARED = 2  # calls of each round of the candidate
HOST_W = 10.0  # of a busy core, above the power of most: price of processor time when a GPU's energy counts


@dataclass
class Window:
    """Sums over the rounds of one role. joules: counted in between_s, the time between the counter readings."""

    calls: int = 0
    ran_s: float = 0.0
    joules: float = 0.0
    between_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, timing: RoundTiming, first: energy.EnergyReading, last: energy.EnergyReading) -> None:
        self.calls += timing.count
        self.ran_s += timing.elapsed_s
        self.joules += last.joules - first.joules
        self.between_s += last.at_s - first.at_s
        self.cpu_s += timing.account.cpu_s

    def net_j(self, idle_w: float) -> float:
        """Joules per call above those of the idle device."""
        return (self.joules - idle_w * self.between_s) / self.calls


class EnergyRun(ReplicateRun):
    """One replicate: timed calls, then energy per call of each role."""

    @classmethod
    def lacks(cls, opened: OpenAnswer, options: Options, level: str) -> str | None:
        """The missing sensor, if any; its domains are disclosed otherwise."""
        try:
            counter = energy.find(options.device, opened["facts"].get("uuid"), options.powercap)
        except Unavailable as error:
            return f"an energy counter: {error.message}"
        opened["facts"]["energy"] = {"counted": list(counter.domains), "idle power": "subtracted"}
        if options.device == "cuda":
            opened["facts"]["energy"]["host"] = f"not counted; processor time above the baseline's costs {HOST_W:g} W"
        return None

    def run(self) -> Replicate:
        """Time, then measure energy."""
        result = super().run()
        try:
            with self.session.phase("energy"):
                self._windows(result)
        except Unavailable as error:
            raise BenchmarkError(error.code, error.message, error.hint) from error
        return result

    def _windows(self, result: Replicate) -> None:
        facts = self.session.opened["facts"]
        counter = energy.find(self.options.device, facts.get("uuid"), self.options.powercap)
        before_w = _idle_w(counter)
        windows = {role: Window() for role in Role}
        order = LATIN_SQUARE[(result.index + self.session.thorough) % len(LATIN_SQUARE)]
        for half in (order, order[::-1]):  # mirrored, so that a drift cancels
            for role in half:
                self._half_window(counter, role, windows[role])
        result.idle_w = before_w, _idle_w(counter)
        host_w = HOST_W if self.options.device == "cuda" else 0.0
        result.metric = per_call(windows, fmean(result.idle_w), host_w)
        rows = {role.label: vars(window) for role, window in windows.items()}
        self.session.log.append("energy", replicate=result.index, idle_w=result.idle_w, windows=rows)

    def _half_window(self, counter: energy.Counter, role: Role, window: Window) -> None:
        """Run rounds of a role for half of its window. Raises ComparisonAborted, BenchmarkError."""
        driver, end_s = self.driver, window.ran_s + WINDOW_S / 2
        capacity = self.session.opened["layout"]["capacity"]
        bits = WARM if self.options.device == "cuda" else 0
        for _ in range(MAX_ROUNDS):
            count = max(1, min(capacity, math.ceil((end_s - window.ran_s) / driver.call_s[role])))
            sample = driver.sample(count, COMPARED) if role is Role.CANDIDATE else []
            driver.fill({role: count}, sample=sample)
            first = counter.step()
            timing = self.strategy.run_round(driver, role, count, bits)
            window.add(timing, first, counter.step())
            driver.verify(role, sample)
            if window.ran_s >= end_s:
                return
        message = f"{MAX_ROUNDS} rounds of {capacity} calls at most take less than {WINDOW_S / 2:g} s."
        raise BenchmarkError("ENERGY_WINDOW", message, "Choose a size with more work per call.")


def _idle_w(counter: energy.Counter) -> float:
    """Power of the device while all workers are stopped."""
    first = counter.step()
    time.sleep(IDLE_S)
    last = counter.step()
    return (last.joules - first.joules) / (last.at_s - first.at_s)


def per_call(windows: dict[Role, Window], idle_w: float, host_w: float = 0.0) -> dict[Role, float]:
    """Joules per call of each role. host_w: price in W of the candidate's processor time beyond the baselines'."""
    cpu_s = {role: window.cpu_s / window.calls for role, window in windows.items()}
    more_s = max(cpu_s[Role.CANDIDATE] - max(cpu_s[role] for role in BASELINES), 0.0)
    joules = {role: window.net_j(idle_w) for role, window in windows.items()}
    return joules | {Role.CANDIDATE: joules[Role.CANDIDATE] + host_w * more_s}
