"""Steps of a comparison of programs with several ranks, on CPUs and GPUs: from the start signal until the last rank is
done.

Rounds are like those of a CPU but longer, because they begin and end on several processes. The verifier cannot hand
over inputs call by call to several ranks at once, so isolated calls are rounds of one call. Outputs are not read from
outside, so the cost of their copies is below the resolution of the parent's clock (verdict/bound.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.judge.evidence import Overhead, RoundCost, RoundTiming
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy, rounds_of_one_call
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.estimate import fit_overhead

SLOW_COPY = 4e9  # bytes per second


class RankStrategy(CpuStrategy):
    """Rounds of several ranks."""

    def note_imports(self, session: Session) -> None:
        """Do nothing: a call of a single process would wait for the others."""

    def settle(self, driver: Driver, counts: dict[Role, int]) -> dict[Role, int]:
        """Do nothing: outputs are copied, so few are alive."""
        return {}

    def measure_isolated_calls(self, driver: Driver) -> None:
        driver.result.isolated = rounds_of_one_call(driver)
        driver.session.log.append("isolated", replicate=driver.result.index, seconds=driver.result.isolated)

    def output_bits(self, driver: Driver) -> int:
        """Outputs are copied: the parent does not read from several ranks."""
        return 0

    def finish(self, driver: Driver, singles: Sequence[RoundTiming], dummies: Sequence[RoundCost]) -> Overhead:
        full = [
            timed_round.timing.cost for timed_round in driver.result.rounds if timed_round.role is not Role.CANDIDATE
        ]
        overhead = fit_overhead([*(single.cost for single in singles), *dummies, *full])
        copies_s = min(overhead.per_call_s, _copy_s(driver.session))  # dummy rounds of several processes vary widely
        return Overhead(overhead.fixed_s, copies_s)


def _copy_s(session: Session) -> float:
    """Seconds of copying the outputs of one call on the rank with the largest ones."""
    layout = Layout.from_json(session.opened["layout"])
    of_ranks = (layout.of_rank(rank).outputs for rank in range(session.ranks))
    return max(sum(spec.nbytes for spec in specs) for specs in of_ranks) / SLOW_COPY
