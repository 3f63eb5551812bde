"""Sequential disk rates at queue depth 1, cached and uncached separately: O_DIRECT against the page cache."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aisp_mcp.errors import ProcessError, Unavailable

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


class Buffer:
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

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *error: object) -> None:
        self.memory.close()
        os.close(self._file)


class Builtin:
    """The four patterns by system calls. Rates in bytes/s."""

    name = "builtin"

    def __init__(self, path: Path, size: int, buffer: Buffer) -> None:
        """size in bytes; the buffer's size is the block of one call."""
        self.path, self.size, self.block = path, size - size % buffer.size, buffer.size
        self._memory = buffer.memory

    def measure(self, pattern: str) -> float | None:
        """Bytes/s of one pass over the file; None if the file system has no O_DIRECT."""
        try:
            return self._measures()[pattern]()
        except OSError as error:
            if pattern.endswith("_direct") and error.errno in _NO_DIRECT:
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


_NO_DIRECT = (22, 95)  # EINVAL, EOPNOTSUPP


def _whole(moved: int, expected: int) -> None:
    if moved != expected:
        raise ProcessError("SHORT_IO", f"The disk moved {moved} of {expected} bytes in one call.", "Is it full?")
