"""Processes by pid and start time, and functions to end whole trees of them. Linux, through /proc; no slow imports.

A pid alone is not an identity, because the kernel reuses it; a pid with its start time (ticks since boot, field 22 of
/proc/PID/stat) is. A process that escapes from its parent and session (double fork, setsid) is still found by a mark in
the environment it was started with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before it may contain spaces and brackets


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which pid started; None if it is gone or a zombie."""
    fields = _stat(pid)
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19])


def first_to_die(pid: int) -> None:
    """Make the kernel end a process and its children, not the harness, when memory runs out.

    Files without a name are memory that no process limit counts; they are freed with the last process that holds them.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")


def stopped(pid: int) -> bool:
    """Return True if a signal or a debugger has stopped the process."""
    return _stat(pid)[:1] in (["T"], ["t"])


def alive(pid: int | None, started: int | None) -> bool:
    """Return True if the process is still running: same pid, same start time, and not a zombie."""
    return pid is not None and started is not None and start_time(pid) == started


def namespace() -> str:
    """Name of the scope in which this process's pids are valid: boot of the kernel and pid namespace."""
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return "unknown"


def prctl(option: int, value: int) -> None:
    """One prctl(2) call. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def children(parent: int) -> list[int]:
    """Direct children, zombies included."""
    try:
        numbers: list[int] = []
        for task in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{task}/children") as file:
                numbers.extend(int(pid) for pid in file.read().split())
        return numbers
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN, or the process is gone
        return [pid for pid in _pids() if (fields := _stat(pid)) and int(fields[1]) == parent]


def descendants(root: int) -> list[int]:
    """Everything below root, nearest first."""
    numbers: list[int] = []
    queue = [root]
    while queue:
        below = children(queue.pop(0))
        numbers.extend(below)
        queue.extend(below)
    return numbers


def marked(name: str, value: str) -> list[int]:
    """Our processes whose initial environment contained name=value, anywhere in the process tree, except this one."""
    entry = f"{name}={value}".encode()
    numbers = []
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:  # gone meanwhile, or another user's
            continue
        if entry in environment.split(b"\0"):
            numbers.append(pid)
    return numbers


def mark(name: str, value: str) -> None:
    """Change a variable in this process's initial environment, which a fork shares with the process it was forked from.

    Its old value must be as long as the new one. Raises ValueError if it is not.
    """
    import ctypes

    begin, end = map(int, _stat(os.getpid())[47:49])
    area = (ctypes.c_char * (end - begin)).from_address(begin)
    at = f"\0{area.raw.decode('latin-1')}".index(f"\0{name}=") + len(name) + 1
    if area.raw[at : at + len(value) + 1].find(b"\0") != len(value):
        raise ValueError(f"{name} has another length than {value}")
    ctypes.memmove(begin + at, value.encode(), len(value))


def kill(pids: list[int], sig: int = signal.SIGKILL) -> None:
    """Signal each; processes that are gone or belong to others are skipped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)


def sweep_marked(name: str, value: str, patience_s: float = 5.0) -> list[int]:
    """Kill all processes that carry the mark until none is left. Returns those that did not die in time."""
    deadline = time.monotonic() + patience_s
    while True:
        left = [pid for pid in marked(name, value) if start_time(pid) is not None]
        if not left or time.monotonic() > deadline:
            return left
        kill(left)
        time.sleep(0.002)


def sweep_children(patience_s: float = 10.0) -> list[int]:
    """Kill and reap everything below this process until it has no child. Exact only for a subreaper, which inherits
    orphans.

    Returns pids that did not die in time (stuck in the kernel).
    """
    deadline = time.monotonic() + patience_s
    me = os.getpid()
    while True:
        kill(descendants(me))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > deadline:
            return descendants(me)
        time.sleep(0.001)


def oom_kills() -> int:
    """Number of processes that the kernel has killed for lack of memory, machine-wide; 0 if it does not report it."""
    with contextlib.suppress(OSError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
