"""A stopped process's time is read when the kernel has taken it off its core, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aisp_mcp.judge.parent.processes import procfs as proc

BOOKED, LATE = 1.0, 1.003  # CPU seconds before and after the thread has left its core


class Kernel:
    """Answers as the kernel does of a stopped thread: "0" so many times, then the place where it waits."""

    def __init__(self, zeros: int) -> None:
        self.zeros, self.slept = zeros, 0.0
        self.kernels_own = proc.read

    def read(self, path: str) -> bytes:
        if not path.endswith("/wchan"):
            return self.kernels_own(path)
        self.zeros -= 1
        return b"0" if self.zeros >= 0 else b"do_signal_stop"

    def cpu_seconds(self, _: int) -> float:
        return BOOKED if self.zeros > 0 and not self.slept else LATE

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    proc._is_told.cache_clear()
    yield monkeypatch
    proc._is_told.cache_clear()


def answers(patch: pytest.MonkeyPatch, zeros: int) -> Kernel:
    kernel = Kernel(zeros)
    patch.setattr(proc, "read", kernel.read)
    patch.setattr(proc, "cpu_seconds", kernel.cpu_seconds)
    patch.setattr("aisp_mcp.judge.parent.processes.procfs.time.sleep", kernel.sleep)
    return kernel


def test_a_stopped_process_is_read_when_the_kernel_says_where_it_waits(told: pytest.MonkeyPatch) -> None:
    kernel = answers(told, zeros=5)
    assert proc.settled([os.getpid()]) == {os.getpid(): LATE}  # the first readings agree, and are old
    kernel.zeros = 5  # the same again of a process that is known to be told of
    assert proc.settled([os.getpid()]) == {os.getpid(): LATE}
    assert kernel.slept == 0.0


def test_where_the_kernel_never_says_it_a_tick_is_waited_for(told: pytest.MonkeyPatch) -> None:
    told.setattr(proc, "SETTLE_S", 0.001)
    kernel = answers(told, zeros=1_000_000)
    assert proc.settled([os.getpid()]) == {os.getpid(): LATE}
    assert kernel.slept == proc.TICK_S
