"""Run a command once: isolated, on its own cores, with its time and resources measured by the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.judge.placement import inside
from aisp_mcp.process import isolation
from aisp_mcp.process.isolation import Level

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
OUTPUT = "stdout"


@dataclass(frozen=True)
class Limits:
    """Declared limits of each side: cores it may compute on, bytes of address space, seconds of one run."""

    cores: frozenset[int]
    memory_bytes: int | None
    timeout_s: float


@dataclass(frozen=True)
class Ran:
    """One run. seconds: wall time of the command; cpu_s: of its tree and the sandbox; code: None for a time-out."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    code: int | None
    stderr: str


def run(argv: Sequence[str], folder: Path, level: Level, limits: Limits, inputs: Mapping[str, str]) -> Ran:
    """Run the command in its folder, standard output kept there as `stdout`. inputs: variables for the program.

    A shell inside the isolation writes a byte and becomes the command: the clock starts there, not at the sandbox's own
    start.
    """
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    threads = str(len(limits.cores))
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    begun, tell = os.pipe()
    shell = ["/bin/sh", "-c", f'printf x >&{tell}; exec "$0" "$@" {tell}>&-', *argv]
    readable = [Path(path) for path in inputs.values()]
    wrapped = isolation.wrap(
        shell, level, writable=[folder], readable=readable, memory_bytes=limits.memory_bytes, devices=True
    )
    errors = folder.with_name(f"{folder.name}.stderr")
    with (folder / OUTPUT).open("wb") as out, errors.open("wb") as err, inside(limits.cores):
        process = subprocess.Popen(
            wrapped,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**environment, **inputs},
            start_new_session=True,
            pass_fds=(tell,),
        )
    os.close(tell)
    timer = threading.Timer(limits.timeout_s, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    with os.fdopen(begun, "rb") as reader:
        reader.read(1)
    begin = time.perf_counter()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    timer.cancel()
    timer.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    code = None if seconds >= limits.timeout_s else process.returncode
    said = errors.read_text("utf-8", "replace")[-500:]
    return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, code, said)
