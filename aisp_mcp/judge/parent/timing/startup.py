"""Start and end of replicates: two start in parallel if cores are idle and there is memory for both, and nothing starts
during a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aisp_mcp.judge.parent.processes.placement import spare_cpus
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.strategy import Strategy

SPARE_FOR_TWO = 3  # with this many idle cores, two replicates start at once


@contextmanager
def started_replicates(session: Session, strategy: Strategy, ready: bool = True) -> Iterator[Iterator[Driver]]:
    """Yield the replicates in turn, started and ready; none outlives the block. ready: False for goals that
    start them.
    """
    started: list[Driver] = []
    try:
        yield _in_turn(session, strategy, started) if ready else _unstarted(session, started)
    finally:
        for driver in started:
            driver.close()


def _unstarted(session: Session, started: list[Driver]) -> Iterator[Driver]:
    """Yield the replicates in turn, without processes; each has ended before the next begins."""
    for number in range(session.options.preset.replicates):
        driver = Driver(session, number)
        driver.rehearsal = started[-1].rehearsal if started else None
        started.append(driver)
        yield driver
        with session.phase("end"):
            driver.close()


def _in_turn(session: Session, strategy: Strategy, started: list[Driver]) -> Iterator[Driver]:
    """Start replicates in batches. The last one of a batch ends while the next batch loads its libraries; meanwhile,
    the first such candidate is traced.
    """
    total, at_once = session.options.preset.replicates, 1
    if spare_cpus() >= SPARE_FOR_TWO:
        at_once = session.replicates_at_once
    last: Driver | None = None
    for begin in range(0, total, at_once):
        batch = [Driver(session, number) for number in range(begin, min(begin + at_once, total))]
        started += batch
        with session.phase("start"):
            for driver in batch if last is None else ():  # nothing uses the memory, and the verifier is idle
                driver.post_attach()
            for driver in batch:
                driver.start()
            _end(last, strategy, traced=begin == at_once)
            for driver in batch:
                driver.attach()
        with strategy.look_ahead(session, batch, last):
            strategy.wait_loaded(session, batch)
        with session.phase("start"):
            strategy.share_kernels(session, batch)
            for driver in batch:
                driver.prepare()
            for driver in batch:
                driver.wait_ready()
        for driver in batch:
            yield driver
            if driver is not batch[-1]:
                _end(driver, strategy, traced=False)
        last = batch[-1]
    _end(last, strategy, traced=total <= at_once)


def _end(driver: Driver | None, strategy: Strategy, traced: bool) -> None:
    if driver is None:
        return
    if traced:
        strategy.trace(driver)
    with driver.session.phase("end"):
        driver.close()
