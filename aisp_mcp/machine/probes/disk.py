"""Sequential disk rates at queue depth 1: four patterns, interleaved over rounds, by fio or by system calls.

Cached and uncached rates are separate: O_DIRECT against the page cache. One temporary file is written and removed.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.machine.probes.probe_runner import rate
from aisp_mcp.machine.probes.records import Placed, Probe
from aisp_mcp.system import disk as disks

ROUNDS = 6
Engine = Literal["auto", "fio", "builtin"]
_UNCACHED = (
    "O_DIRECT bypasses this kernel's cache; a hypervisor's, a controller's or a server's cache may still answer."
)
_IN_MEMORY = "This file system is in memory: there is no disk under it, so no rate is called uncached."
_NO_DIRECT = "This file system has no O_DIRECT (tmpfs and some overlays): nothing uncached could be measured."


def probe(
    folder: Path, size: int, block: int, engine: Engine, budget_s: float, progress: Callable[[float, str], None]
) -> Probe:
    """Rates in bytes/s; sizes in bytes. Six rounds unless the budget ends them earlier (at least one).

    Raises Unavailable NO_FOLDER, DISK_FULL, NOT_INSTALLED; ProcessError from fio.
    """
    check_space(folder, size)
    began = time.monotonic()
    mounted = next(iter(disks.read([folder.absolute()])), None)
    in_memory = mounted is not None and mounted.kind == "memory"
    with scratch(folder) as path, AlignedBuffer(block) as buffer:
        runner = _runner(engine, path, size, buffer, budget_s)
        Builtin(path, size, buffer).measure("write_synced")  # the file's blocks are allocated before anything counts
        samples = _rounds(runner, _patterns(in_memory), began + budget_s, progress)
    uncached = bool(samples.get("read_direct"))
    return Probe(
        device=f"{folder} ({mounted.filesystem}, {mounted.kind})" if mounted else str(folder),
        device_id=(mounted.device if mounted else None) or "disk",
        results=[Placed(name=name, unit="B/s", rate=rate(values)) for name, values in samples.items() if values],
        notes=[_IN_MEMORY if in_memory else _UNCACHED if uncached else _NO_DIRECT],
        conditions={"engine": runner.name, "size_bytes": runner.size, "block_bytes": block, "queue_depth": 1},
        seconds=round(time.monotonic() - began, 3),
    )


def _runner(engine: Engine, path: Path, size: int, buffer: AlignedBuffer, budget_s: float) -> Builtin | Fio:
    program = find_fio() if engine != "builtin" else None
    if program is not None:
        return Fio(program, path, size, buffer, timeout_s=budget_s)
    if engine == "fio":
        raise Unavailable("NOT_INSTALLED", "fio was not found on PATH.", "sudo apt-get install fio, or engine=builtin")
    return Builtin(path, size, buffer)


def _patterns(in_memory: bool) -> tuple[str, ...]:
    """The patterns to measure; none with O_DIRECT in memory: recent kernels accept it on tmpfs, where it
    means nothing.
    """
    return tuple(name for name in PATTERNS if not (in_memory and name.endswith("_direct")))


def _rounds(
    runner: Builtin | Fio,
    patterns: tuple[str, ...],
    deadline: float,
    progress: Callable[[float, str], None],
) -> dict[str, list[float]]:
    """Samples per pattern; the order is reversed every other round so that drift affects all patterns equally."""
    samples: dict[str, list[float]] = {name: [] for name in patterns}
    for number in range(ROUNDS):
        order = patterns if number % 2 == 0 else patterns[::-1]
        for name in order:
            value = runner.measure(name)
            if value is not None:
                samples[name].append(value)
        progress((number + 1) / ROUNDS, f"round {number + 1} of {ROUNDS}")
        if time.monotonic() > deadline:
            break
    return samples


PATTERNS = ("write_direct", "write_synced", "read_direct", "read_cached")
_ALIGN = 4096


def check_space(folder: Path, size: int) -> None:
    """Raise Unavailable NO_FOLDER or DISK_FULL unless twice the size and 256 MiB are free."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise Unavailable("NO_FOLDER", f"{folder} is not a folder this user may write to.", "Name another with --dir.")
    free = shutil.disk_usage(folder).free
    if free < 2 * size + 256 * 2**20:
        raise Unavailable(
            "DISK_FULL",
            f"{folder} has {free / 2**20:.0f} MiB free; {size / 2**20:.0f} MiB twice and a reserve are needed.",
            "Choose a smaller size_mb or another folder.",
        )


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A new file with an unguessable name, which is always removed; files left by a killed process are
    removed first.
    """
    _remove_orphans(folder)
    path = folder / f".aisp-disk-{os.getpid()}-{os.urandom(6).hex()}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_orphans(folder: Path) -> None:
    for file in folder.glob(".aisp-disk-*-*"):
        pid = file.name.split("-")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)


class AlignedBuffer:
    """Memory that a pass reads into and writes from: page-aligned, as O_DIRECT requires, and filled with random data,
    so that nothing can be compressed away.

    Another program can map the same pages: `path` names them while this process lives. To compare two programs, two
    buffers would not do: the physical layout of a buffer's pages decides how many pieces a direct request is split
    into, and on a virtual disk whose host handles them one by one, that decides the rate.
    """

    def __init__(self, size: int) -> None:
        """size in bytes, a multiple of 4096."""
        self.size = size
        self._file = os.memfd_create("aisp-disk")
        os.ftruncate(self._file, size + _ALIGN)  # fio requests a page more than it uses
        self.memory = mmap.mmap(self._file, size)
        self.memory.write(os.urandom(size))
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def __enter__(self) -> AlignedBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self.memory.close()
        os.close(self._file)


class Builtin:
    """The four patterns by system calls. Rates in bytes/s."""

    name = "builtin"

    def __init__(self, path: Path, size: int, buffer: AlignedBuffer) -> None:
        """size in bytes; the buffer's size is the block of one call."""
        self.path, self.size, self.block = path, size - size % buffer.size, buffer.size
        self._memory = buffer.memory

    def measure(self, pattern: str) -> float | None:
        """Bytes/s of one pass over the file; None if the file system has no O_DIRECT."""
        try:
            return self._measures()[pattern]()
        except OSError as error:
            if pattern.endswith("_direct") and error.errno in _NO_DIRECT_ERRORS:
                return None
            raise

    def _measures(self) -> dict[str, Callable[[], float]]:
        return {
            "write_direct": self._write_direct,
            "write_synced": self._write_synced,
            "read_direct": self._read_direct,
            "read_cached": self._read_cached,
        }

    def _write(self, flag: int, sync: bool) -> float:
        fd = os.open(self.path, os.O_WRONLY | flag)
        try:
            began = time.perf_counter_ns()
            spent_ns = self._pass(os.pwritev, fd)
            if sync:
                os.fsync(fd)
                spent_ns = time.perf_counter_ns() - began  # the disk works between the calls too
            return self.size / (spent_ns / 1e9)
        finally:
            os.close(fd)

    def _write_direct(self) -> float:
        drop_cached(self.path)
        return self._write(os.O_DIRECT, sync=False)

    def _write_synced(self) -> float:
        drop_cached(self.path)  # overwriting cached pages would be faster than writing
        return self._write(0, sync=True)

    def _read_direct(self) -> float:
        drop_cached(self.path)
        return self._read(os.O_DIRECT)

    def _read_cached(self) -> float:
        self._read(0)  # now it is in the page cache
        return self._read(0)

    def _read(self, flag: int) -> float:
        fd = os.open(self.path, os.O_RDONLY | flag)
        try:
            return self.size / (self._pass(os.preadv, fd) / 1e9)
        finally:
            os.close(fd)

    def _pass(self, move: Callable[[int, list[mmap.mmap], int], int], fd: int) -> int:
        """Nanoseconds within the system calls of one pass over the file, as fio sums its latencies.

        At queue depth 1, this is the time of the disk, which is idle between two calls.
        """
        spent = 0
        for offset in range(0, self.size, self.block):
            began = time.perf_counter_ns()
            moved = move(fd, [self._memory], offset)
            spent += time.perf_counter_ns() - began
            _whole(moved, self.block)
        return spent


def drop_cached(path: Path) -> None:
    """Write back and forget the cached pages of a file: O_DIRECT would otherwise wait for dirty ones."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


_NO_DIRECT_ERRORS = (22, 95)  # EINVAL, EOPNOTSUPP


def _whole(moved: int, expected: int) -> None:
    if moved != expected:
        raise ProcessError("SHORT_IO", f"The disk moved {moved} of {expected} bytes in one call.", "Is it full?")


_FLAGS = {
    "write_direct": ["--rw=write", "--direct=1"],
    "write_synced": ["--rw=write", "--direct=0", "--end_fsync=1"],
    "read_direct": ["--rw=read", "--direct=1"],
    "read_cached": ["--rw=read", "--direct=0"],
}
_COARSE_MS = 500


def find_fio() -> str | None:
    """fio on PATH, or None."""
    return shutil.which("fio")


class Fio:
    """One fio call per pass: psync, one job, queue depth 1. Rates in bytes/s."""

    name = "fio"

    def __init__(self, program: str, path: Path, size: int, buffer: AlignedBuffer, timeout_s: float) -> None:
        """size in bytes; the buffer's size is the block of one call, and fio uses the buffer's own pages."""
        self.path, self.size, self.block = path, size - size % buffer.size, buffer.size
        self._program, self._buffer, self._timeout_s = program, buffer, timeout_s

    def measure(self, pattern: str) -> float | None:
        """Bytes/s of one pass; None where the file system has no O_DIRECT. Raises ProcessError."""
        if pattern == "read_cached":
            self._warm()
        else:
            drop_cached(self.path)
        document = self._run(pattern)
        job = document["jobs"][0]
        if job["error"]:
            if pattern.endswith("_direct") and job["error"] == 22:
                return None
            raise ProcessError("CRASHED", f"fio reported error {job['error']} for {pattern}.")
        return bytes_per_second(job["read" if "read" in pattern else "write"], synced=pattern == "write_synced")

    def _run(self, pattern: str) -> dict[str, Any]:
        from aisp_mcp.process.run import run

        done = run(self.argv(pattern), timeout_s=self._timeout_s, cwd=self.path.parent)
        start = done.stdout.find("{")
        if done.timed_out or start < 0:
            why = "took too long" if done.timed_out else (done.stderr.strip() or done.stdout.strip())[-300:]
            raise ProcessError("TIMEOUT" if done.timed_out else "CRASHED", f"fio {pattern}: {why}")
        report: dict[str, Any] = json.loads(done.stdout[start:])
        return report

    def argv(self, pattern: str) -> list[str]:
        """The command of one pass."""
        return [
            self._program,
            f"--name={pattern}",
            # fio splits file names at colons
            f"--filename={str(self.path).replace(':', chr(92) + ':')}",
            f"--bs={self.block}",
            f"--size={self.size}",
            "--ioengine=psync",
            "--numjobs=1",
            f"--iomem=mmapshared:{self._buffer.path}",
            "--scramble_buffers=0",  # random once, as the built-in engine; changing every block costs CPU time
            "--invalidate=0",  # fio would count dropping cached pages as run time, so they are dropped before
            "--output-format=json",
            *_FLAGS[pattern],
        ]

    def _warm(self) -> None:
        with open(self.path, "rb", buffering=0) as file:
            while file.read(self.block):
                pass


def bytes_per_second(direction: dict[str, Any], synced: bool) -> float:
    """fio's own bandwidth or, if its millisecond clock is too coarse, bytes over the summed latencies (queue depth 1).

    A synced write uses fio's runtime, because the final fsync is in no request's latency.
    """
    if direction["runtime"] >= _COARSE_MS or synced:
        return float(direction["bw_bytes"])
    spent_s = direction["lat_ns"]["mean"] * direction["lat_ns"]["N"] / 1e9
    return float(direction["io_bytes"] / spent_s)
