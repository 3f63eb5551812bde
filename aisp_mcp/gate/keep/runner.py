"""Run programs one at a time for the gate, as a small process of its own: `python -I -S runner.py`.

Each line of standard input is a request and each line of the answer its result, in JSON. A process that starts a
program counts its own memory as the program's until that begins, so the one that starts them must be small.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the program to its end. code: None if it took too long."""
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
    _kill(pid)  # what it left running
    for descriptor in (out, err, pidfd):
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(status) if ended else None
    cpu_s = used.ru_utime + used.ru_stime
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_bytes": used.ru_maxrss * 1024, "code": code}


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
