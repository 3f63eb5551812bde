"""Sequence of one replicate of goal "cold": the time from the parent's start signal to a fresh process's first answer.

Everything that a program does before its answer is between two readings of the parent's clock: loading its file,
prepare and one call on secret inputs; for `cold = "process"` also the start of the process and of its libraries. None
of a program's code runs earlier: its process has only loaded the harness's libraries. One set of processes runs first,
uncounted: it brings libraries into the page cache, and fills the compile caches, which are copied if the
baseline declares them full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from aisp_mcp.judge.evidence import Replicate, Round, RoundTiming
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent import kernel_cache
from aisp_mcp.judge.parent.processes import placement
from aisp_mcp.judge.parent.timing.driver import START_DEADLINE_S, Driver
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.presets import LATIN_SQUARE
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.messages import WARM, OpenAnswer
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.process import isolation

REHEARSAL = -2  # index of the rehearsal, which uses the memory of the first replicate
ORDERS = (*LATIN_SQUARE, *(order[::-1] for order in LATIN_SQUARE))


class ColdRun(ReplicateRun):
    """One replicate: each role's first answer, once."""

    starts_ready = False

    @classmethod
    def lacks(cls, opened: OpenAnswer, options: Options, level: str) -> str | None:
        """Refuse copied caches if a program could write into another one's folder."""
        if opened["cold"]["caches"] == "full" and level not in isolation.NAMESPACES:
            return f"isolation level L2 (goal cold with full caches), found {level}"
        return None

    def run(self) -> Replicate:
        """Start, measure and verify each role in turn."""
        session, index = self.session, self.driver.result.index
        if self.driver.rehearsal is None:
            self.driver.rehearsal = self._rehearse()
        order = ORDERS[(index + session.thorough) % len(ORDERS)]
        self._start(self.driver, order)
        for role in order:
            timing = self._first_answer(self.driver, role)
            own = replace(timing, durations_ns=[int(1e9 * timing.elapsed_s)])  # the parent's: no other clock counts
            self.driver.result.rounds.append(Round(role, timing.elapsed_s, timing.elapsed_s, own))
            self.driver.result.metric[role] = timing.elapsed_s
            session.log.append(
                "cold", replicate=index, side=role, elapsed_s=timing.elapsed_s, account=vars(timing.account)
            )
        for role in order:
            self.driver.verify(role, [0], timed=True)
        self._call_again()
        return self.driver.result

    def _rehearse(self) -> Driver:
        """Run both programs once, uncounted. Their folders remain. Raises ComparisonAborted."""
        roles, session = (Role.BASELINE, Role.CANDIDATE), self.session
        driver = Driver(session, REHEARSAL)
        try:
            self._start(driver, roles)
            for role in roles:
                self._first_answer(driver, role)
                driver.verify(role, [0])
        finally:
            driver.close()
        session.opened["facts"]["cold"] = session.opened["cold"]
        return driver

    def _start(self, driver: Driver, roles: Sequence[Role]) -> None:
        """Set up memory, inputs and caches, and start the processes whose start does not count."""
        session = self.session
        for role in roles:
            setup, own_placement = driver.setup(role), driver.placement(role)
            setup["bytecode"] = str(own_placement.seen / placement.BYTECODE.lower())
            if driver.rehearsal and session.opened["cold"]["caches"] == "full":
                rehearsed = driver.rehearsal.placement(Role.CANDIDATE if role is Role.CANDIDATE else Role.BASELINE)
                files = kernel_cache.copy(rehearsed, own_placement, placement.COMPILE_CACHES, tuned=True)
                session.log.append("caches", replicate=driver.result.index, side=role, files=files)
        with session.phase("start"):
            if not self._counts_start:
                for role in roles:
                    driver.launch(role)
            driver.attach()
        driver.fill(dict.fromkeys(roles, 1))
        with session.phase("start"):
            for role in () if self._counts_start else roles:
                driver.guarded(role, partial(driver.workers[role].await_loaded, START_DEADLINE_S))

    @property
    def _counts_start(self) -> bool:
        return self.session.opened["cold"]["from"] == "process"

    def _first_answer(self, driver: Driver, role: Role) -> RoundTiming:
        """The role's first answer, on the parent's clock from its start signal."""
        begin, session = 0.0, self.session
        if self._counts_start:
            with placement.inside(session.placement.cpus):
                begin = clock()
                driver.launch(role)
        worker, setup = driver.workers[role], dict(driver.setup(role))
        bits = WARM if self.options.device == "cuda" else 0

        def measure(at_done: object) -> RoundTiming:
            return driver.guarded(role, lambda: worker.first_answer(setup, bits, START_DEADLINE_S, at_done, begin))  # type: ignore[arg-type]

        with session.phase("first call"):
            timing = self.strategy.with_outputs(driver, role, measure)
        driver.learn(role, timing)
        return timing

    def _call_again(self) -> None:
        """Run further calls of the candidate: its program must answer all inputs, not only the first. The second one is
        timed, beside the baseline's: it may do what the first left undone.
        """
        driver, seconds = self.driver, self.driver.result.second_s
        driver.fill({Role.BASELINE: 1})
        seconds[Role.BASELINE] = self.strategy.run_round(driver, Role.BASELINE, 1).elapsed_s
        driver.verify(Role.BASELINE, [0])
        kinds = self.session.adversarial
        modes = ["plain", self.random.choice(kinds)] if kinds else ["plain"]
        for mode in modes:
            driver.fill({Role.CANDIDATE: 1}, mode)
            elapsed_s = self.strategy.run_round(driver, Role.CANDIDATE, 1).elapsed_s
            seconds.setdefault(Role.CANDIDATE, elapsed_s)
            driver.verify(Role.CANDIDATE, [0])
