"""Run a command once: isolated, on its own cores, with its time and resources measured by the parent."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.judge.placement import inside
from aisp_mcp.process import forbidden, isolation, tree
from aisp_mcp.process.isolation import NAMESPACES, Level
from aisp_mcp.process.run import MARK

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
OUTPUT = "stdout"
# Calls that could leave something for the next run outside its folder, or leave its cores.
FORBIDDEN = (*forbidden.PLACEMENT, *forbidden.KEYRINGS)


@dataclass(frozen=True)
class Limits:
    """Declared limits of each program: cores it may compute on, bytes of address space, seconds of one run."""

    cores: frozenset[int]
    memory_bytes: int | None
    timeout_s: float


@dataclass(frozen=True)
class Ran:
    """One run. seconds: wall time of the command; cpu_s: of the sandbox and all its processes, orphans included from L2
    on; code: None for a time-out.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    code: int | None
    stderr: str
    user_s: float = 0.0


def _environment(limits: Limits) -> dict[str, str]:
    """The variables of this process that a program sees."""
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    threads = str(len(limits.cores))
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # or bytecode of modules among its inputs would be an output
    return environment


def run(
    argv: Sequence[str],
    folder: Path,
    level: Level,
    limits: Limits,
    inputs: Mapping[str, str],
    hidden: Sequence[Path] = (),
) -> Ran:
    """Run the command in its folder, which gets its standard output as `stdout`.

    inputs: variables that name folders it may read. hidden: folders that appear empty to it, from L2 on. A shell inside
    the isolation writes a byte and becomes the command: the clock starts there.
    """
    environment = {**_environment(limits), **inputs, MARK: (mark := secrets.token_hex(8))}
    begun, tell = os.pipe()
    shell = ["/bin/sh", "-c", 'printf x >&0; exec "$0" "$@" </dev/null', *argv]
    folders = {"writable": [folder], "readable": [Path(path) for path in inputs.values()], "hidden": hidden}
    wrapped = isolation.wrap(shell, level, memory_bytes=limits.memory_bytes, forbidden=FORBIDDEN, **folders)
    errors = folder.with_name(f"{folder.name}.stderr")
    with (folder / OUTPUT).open("wb") as out, errors.open("wb") as err, inside(limits.cores):
        process = subprocess.Popen(
            wrapped,
            cwd=folder,
            stdin=tell,  # a shell may not support descriptors above 9
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=True,
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
    if level not in NAMESPACES:  # elsewhere orphans end with the namespace
        tree.sweep_marked(MARK, mark)
    process.returncode = os.waitstatus_to_exitcode(status)
    code = None if seconds >= limits.timeout_s else process.returncode
    text = errors.read_text("utf-8", "replace")[-500:]
    return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, code, text, used.ru_utime)
