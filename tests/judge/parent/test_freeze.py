"""Processes that are told to stand still, and what may happen meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from waiting import PATIENCE_S, until

from aisp_mcp.judge.parent.processes import process as workers
from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.protocol.clock import clock

CHILD = """
import os
if os.fork() == 0:
    os.write(1, b"c")
while True:
    pass
"""


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    """The parent's handle on a process that computes without end, and so does its child."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    try:
        assert process.stdout.read(1) == b"c"  # both are there
        instance = object.__new__(WorkerProcess)
        instance.name, instance.pid, instance._first, instance._freezes = "worker", process.pid, None, True
        instance._known = proc.spent(proc.tree(process.pid))
        assert len(instance._known) == 2
        yield instance
    finally:
        proc.send(proc.tree(process.pid), signal.SIGKILL)
        process.wait()
        process.stdout.close()


def stands_still(worker: WorkerProcess) -> bool:
    return all(proc.state(task) == "T" for task in proc.tasks(proc.tree(worker.pid)))


def test_all_who_are_known_stand_still_when_the_clock_is_read(worker: WorkerProcess) -> None:
    begin = clock()
    stood = worker.freeze()
    assert begin < stood < clock()
    assert stands_still(worker)
    assert proc.spent([*worker._known]) == worker._known


@pytest.mark.parametrize("known", ["one of two", "nobody"])
def test_who_was_not_known_is_found_and_the_clock_runs_until_then(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    worker._known = {worker.pid: 0.0} if known == "one of two" else {}
    looked, tree = list[float](), proc.tree

    def noted(pid: int) -> list[int]:
        looked.append(clock())
        return tree(pid)

    monkeypatch.setattr(workers.proc, "tree", noted)
    stood = worker.freeze()
    assert looked[0] < stood < clock()
    assert stood > looked[0 if known == "nobody" else 1]  # when all of them were known
    monkeypatch.undo()
    assert stands_still(worker)
    assert len(worker._known) == 2


def test_who_is_let_go_meanwhile_is_stopped_again(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a timer, which no freezing ends."""
    real = proc.settled

    def settled(pids: list[int]) -> dict[int, float]:
        result = real(pids)
        monkeypatch.undo()
        proc.send(pids, signal.SIGCONT)
        until(lambda: any(proc.state(pid) == "R" for pid in pids))
        return result

    monkeypatch.setattr(workers.proc, "settled", settled)
    begin = clock()
    assert begin < worker.freeze() < clock()
    assert proc.wait_stopped(proc.tree(worker.pid), PATIENCE_S)


def test_who_dies_instead_ends_no_freezing(worker: WorkerProcess) -> None:
    proc.send(proc.tree(worker.pid), signal.SIGKILL)
    begin = clock()
    assert begin < worker.freeze() < clock()


def test_where_nobody_is_left_the_clock_is_that_of_now(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    worker._known = {}
    monkeypatch.setattr(worker, "_everyone", list)
    begin = clock()
    assert begin < worker.freeze() < clock()
