"""A few rounds of both programs on a CPU, which show how long calls are and decide nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from aisp_mcp.judge.evidence import Replicate, Round
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.verdict import replay

# --- calibrated constants

TURNS = 3  # rounds of each role. Chosen: the shortest median counts
# Of one replicate. Chosen: with 200 calls, a round's fixed cost adds a quarter of a microsecond to a call.
PRESET = Preset("trial", 1, 0.006, palindromes=1, max_calls=200)
PATIENCE_S = 10.0  # until the specification is opened, which calls the baseline about forty times


@dataclass(frozen=True)
class CallTimes:
    """Of both programs on a CPU. baseline_s: seconds of a call. resolution: fraction of the shorter call that is
    subtracted as overhead although a candidate could have skipped it. varies: the baseline's output depends on the
    inputs that are timed.
    """

    baseline_s: float
    resolution: float
    varies: bool


class TrialRun(ReplicateRun):
    """Check the candidate's outputs, warm up, and time a few rounds on the workers' own clocks: a bent one only changes
    at which size the candidate is judged.
    """

    def run(self) -> Replicate:
        driver, result = self.driver, self.driver.result
        driver.wait_ready()
        singles = self._pilot()
        self._warm_up()
        for _ in range(TURNS):
            counts = driver.counts()
            driver.fill(driver.as_many(counts))
            for role, count in counts.items():
                timing = self.strategy.run_round(driver, role, count)
                own_s = replay.median_s(timing)
                result.rounds.append(Round(role, own_s, own_s, timing))
        result.overhead = self.strategy.finish(driver, singles, [])
        return result


def call_times(result: Replicate, varies: bool) -> CallTimes:
    """The call times that the rounds of a trial show."""
    shortest = {
        role: min((row for row in result.rounds if row.role is role), key=lambda row: row.net_s) for role in Role
    }
    resolution = max(result.overhead.resolution(row.net_s, row.timing.count) for row in shortest.values())
    return CallTimes(min(shortest[role].net_s for role in BASELINES), resolution, varies)
