"""Process tree, states and accounts of a worker, which the parent reads from the kernel."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from aisp_mcp.judge.evidence import Account

GONE = ("Z", "X", "")  # states of an ended thread
STOPPED = ("T", "t", *GONE)
SETTLE_S = 0.1
TICK_S = 0.01  # the longest interval between two updates of a computing thread's account


def read(path: str) -> bytes:
    """Read a short file of the kernel, four times as fast as pathlib: each round reads one for up to a hundred threads,
    before and after.

    Raises OSError.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    pids = [pid]
    for parent in pids:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                pids += map(int, read(f"/proc/{parent}/task/{task}/children").split())
    return pids


def tasks(pids: list[int]) -> list[int]:
    threads = []
    for pid in pids:
        with suppress(OSError):
            threads += [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    return threads


def state(pid: int) -> str:
    """One letter as in ps: R, S, D, T, Z; empty when there is no such process."""
    try:
        return read(f"/proc/{pid}/stat").rpartition(b")")[2].split(maxsplit=1)[0].decode()
    except OSError:
        return ""


def name(pid: int) -> str:
    """The name of the program, its first 15 characters; empty when there is no such process."""
    try:
        return read(f"/proc/{pid}/comm").decode(errors="replace").strip()
    except OSError:
        return ""


def account(pids: list[int]) -> Account:
    """Add up the kernel's accounts of these processes, the program first. Ended ones count as zero."""
    cpu_s, minor, major, threads, alive = 0.0, 0, 0, 0, 0
    first_s, delayed_s = delays(pids[0]) if pids else (0.0, 0.0)
    for pid in pids:
        with suppress(OSError, ValueError):
            fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            minor, major = minor + int(fields[7]), major + int(fields[9])
            cpu_s += cpu_seconds(pid)
            threads += int(fields[17])
            alive += 1
    return Account(cpu_s, minor, major, threads, alive, delayed_s, first_s)


def delays(pid: int) -> tuple[float, float]:
    """CPU seconds of a process's first thread, and the seconds that it was ready to run while its core ran another
    thread; zeros if the kernel does not report them.
    """
    with suppress(OSError, ValueError):
        ran, waited = read(f"/proc/{pid}/schedstat").split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9
    return 0.0, 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads that the process has had, in nanosecond resolution (/proc/PID/stat counts ticks of 10
    ms).

    The clock id of another process is the complement of its pid combined with the kind of clock, 2 for scheduled time:
    clock_getcpuclockid(3). Raises OSError if the process does not exist.
    """
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def spent(pids: list[int]) -> dict[int, float]:
    """CPU seconds of each process that still exists."""
    seconds = {}
    for pid in pids:
        with suppress(OSError):
            seconds[pid] = cpu_seconds(pid)
    return seconds


def settled(pids: list[int]) -> dict[int, float]:
    """CPU seconds of stopped processes, once the kernel has recorded all of them.

    A thread that counts as stopped may still be leaving its core, and a hypervisor may take the core away just then,
    for milliseconds. Its time since the last tick is recorded when it has left. So this waits until the kernel reports
    a wait channel for each thread, which it never does for a thread that is still on a run queue; if the kernel hides
    the channel from this user, it waits for TICK_S instead.
    """
    end = time.monotonic() + SETTLE_S
    for pid in pids:
        if not _is_told(pid):
            time.sleep(TICK_S)
            continue
        while not all(map(_waits, tasks([pid]))) and time.monotonic() < end:
            pass
    return spent(pids)


def _waits(task: int) -> bool:
    """Return True if the kernel reports where this thread waits, or the thread has ended."""
    with suppress(OSError):
        if read(f"/proc/{task}/wchan") != b"0":
            return True
    return state(task) in GONE


@lru_cache(maxsize=256)
def _is_told(pid: int) -> bool:
    """Check whether the kernel shows this user where a stopped process waits."""
    end = time.monotonic() + SETTLE_S
    while not _waits(pid):
        if time.monotonic() > end:
            return False
    return True


def reset_peak(pid: int) -> None:
    """Reset the kernel's memory peak."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def session_nice(pid: int) -> int:
    """Nice value of the session of a process; 0 if the kernel has none.

    With autogroups, a core is first shared between busy sessions, and the nice value of a process counts only within
    its own.
    """
    with suppress(OSError):
        if words := read(f"/proc/{pid}/autogroup").split():
            return int(words[-1])
    return 0


def set_session_nice(pid: int, value: int) -> None:
    """Set the nice value of the process's session, if this user may and the kernel supports it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(value))


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to every process of the list that still lives."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_stopped(pids: list[int], deadline_s: float) -> bool:
    """Return True once every thread of every process is stopped, a zombie or gone; False at the deadline.

    A thread inside the kernel continues until its system call returns, although the process is already marked as
    stopped.
    """
    end = time.monotonic() + deadline_s
    while moving := [task for task in tasks(pids) if state(task) not in STOPPED]:
        for task in moving:
            while state(task) not in STOPPED:
                if time.monotonic() > end:
                    return False
    return True
