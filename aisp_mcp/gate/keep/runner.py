"""Run programs one at a time for the gate, as a small process of its own: `python -I -S runner.py`.

Each line of standard input is a request and each line of the answer its result, in JSON. A process that starts a
program counts its own memory as the program's until that begins, so the one that starts them must be small. It must be
a subreaper: then processes that outlive their parents become its children, and count.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the program to its end. code: None if it took too long. left: processes that it left running."""
    out, err = (os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for name in ("out", "err"))
    began = time.perf_counter()
    pid = os.fork()
    if not pid:
        _become(request, out, err)
    pidfd = os.pidfd_open(pid)
    ended = bool(select.select([pidfd], [], [], request["timeout_s"])[0])
    seconds = time.perf_counter() - began
    if not ended:
        _kill(pid)
    _, status, used = os.wait4(pid, 0)
    cpu_s, peak_bytes = _usage(used)
    left = 0
    for is_running, more in _end_orphans():
        cpu_s, peak_bytes, left = cpu_s + _usage(more)[0], max(peak_bytes, _usage(more)[1]), left + is_running
    _kill(pid)
    for descriptor in (out, err, pidfd):
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(status) if ended else None
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_bytes": peak_bytes, "code": code, "left": left}


def _usage(used: resource.struct_rusage) -> tuple[float, int]:
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _end_orphans() -> Iterator[tuple[bool, resource.struct_rusage]]:
    """End and wait for what is left of the program; whether each was still running, and what it used."""
    while True:
        try:
            pid, _, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if is_running := not pid:
            try:
                with open("/proc/thread-self/children") as file:
                    pid = int(file.read().split()[0])
            except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
                return
            os.kill(pid, signal.SIGKILL)
            _, _, used = os.wait4(pid, 0)
        yield is_running, used


def _become(request: dict[str, Any], out: int, err: int) -> None:
    try:
        os.setsid()
        os.chdir(request["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _kill(group: int) -> None:
    with contextlib.suppress(OSError):  # nothing is left
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
