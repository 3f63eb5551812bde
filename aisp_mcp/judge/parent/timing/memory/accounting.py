"""Memory that the calls of a worker add, over its whole process tree: anonymous, shared, and held through files.

Resident memory alone misleads in two ways. A scratch area in an anonymous file, or in the page cache, is not resident
in any process. And library pages are resident: a process that releases them before it allocates seems to add nothing.
So this counts anonymous and shared memory, plus what the kernel holds in pipes, sockets, and files that a process can
write to or that have no name, each by its inode, so that memory shared by several processes counts once. It does not
count pages of mapped files. Memory that cannot be seen from outside, such as unattached segments, is forbidden in
memory benchmarks (process/forbidden.py).

Short peaks come from the kernel's high-water mark, if mapped files cannot explain any part of it. The kernel keeps no
such mark of what it holds through files: between two samples it may have been higher than in both, so the largest rise
between two samples is added, up to an eighth of the whole.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import struct
import sys
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.parent.processes.confined import WorkerGone
from aisp_mcp.process import kernel

SCRATCH = ("tmp", "dev/shm")  # in the process's file system; private from isolation level L2 on
DROPPED = 4 << 20  # bytes of mapped files released in a round by accident; more is deliberate
MISSED = 1 / 8  # of the largest memory held through files, at most, for peaks between samples; up to 12 % were missed
_FIELDS = ("RssAnon", "RssFile", "RssShmem", "VmSwap", "VmHWM", "HugetlbPages")


def inode(fd: int) -> Inode:
    """Device and inode number of the open file."""
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


@dataclass(frozen=True)
class Footprint:
    """Bytes of a process tree now. held: through files, except mapped ones. mapped: pages of mapped files. mark: the
    kernel's high-water mark of resident memory since the last reset, mapped files included.
    """

    anonymous: int = 0
    shared: int = 0
    held: int = 0
    mapped: int = 0
    mark: int = 0

    @property
    def counted(self) -> int:
        return self.anonymous + self.shared + self.held


def footprint(
    pids: Iterable[int], own: frozenset[Inode] = frozenset(), named: Mapping[Inode, int] = MappingProxyType({})
) -> Footprint:
    """The memory of these processes. own: the harness's files. named: bytes of files known by name, see named_files().
    Raises WorkerGone.
    """
    rows, files, nameless, mapped_inodes = [], dict[Inode, int](), dict[Inode, int](), set[int]()
    for pid in pids:
        rows.append(_status(pid))
        files |= open_files(pid)
        maps = mappings(pid)
        nameless |= maps.nameless
        mapped_inodes |= maps.inodes
    files = nameless | dict(named) | files
    anonymous, mapped, shared, swapped, mark, huge = (sum(column) for column in zip(*rows, strict=True))
    arena = sum(files.pop(inode, 0) for inode in own)
    shared, held = max(shared - arena, 0), sum(files.values())
    held -= min(shared, sum(size for (_, number), size in files.items() if number in mapped_inodes))
    return Footprint(anonymous + swapped + huge, shared, held, mapped, mark - arena)


def named_files(pids: Iterable[int], folder: Path) -> dict[Inode, int]:
    """Bytes of the files in the folder and in the private scratch folders of these processes, by inode."""
    roots = {f"/proc/{pid}/root/{name}" for pid in pids for name in SCRATCH}
    sizes = dict[Inode, int]()
    for root in (str(folder), *(root for root in roots if _is_private(root))):
        for inside, folders, names in os.walk(root):
            folders[:] = [name for name in folders if _may_hold_files(inside, name)]
            for name in names:
                with suppress(OSError):
                    about = os.lstat(os.path.join(inside, name))
                    if stat.S_ISREG(about.st_mode):
                        sizes[about.st_dev, about.st_ino] = about.st_blocks * BLOCK
    return sizes


def _status(pid: int) -> tuple[int, ...]:
    """The _FIELDS of one process in bytes; zeros if it is gone."""
    values = dict.fromkeys(_FIELDS, 0)
    with suppress(OSError):
        for line in proc.read(f"/proc/{pid}/status").decode("utf-8", "replace").splitlines():
            key, _, rest = line.partition(":")
            if key in values:
                values[key] = int(rest.split()[0]) * 1024
    return tuple(values[name] for name in _FIELDS)


def _may_hold_files(inside: str, name: str) -> bool:
    """Return False for a read-only mount, such as an environment in a scratch folder: no process can write there."""
    path = os.path.join(inside, name)
    with suppress(OSError):
        if os.lstat(path).st_dev != os.lstat(inside).st_dev:
            return not os.statvfs(path).f_flag & os.ST_RDONLY
    return True


def _is_private(root: str) -> bool:
    """Return True if a process has a different folder at that path than this process."""
    with suppress(OSError):
        there, here = os.stat(root), os.stat("/" + root.partition("root/")[2])
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
    return False


class Held(NamedTuple):
    """Samples of the bytes that a process tree holds through files: the last one, the most, and the largest rise from
    one to the next.
    """

    last: int = 0
    most: int = 0
    rise: int = 0

    def then(self, held: int) -> Held:
        """With one more sample."""
        return Held(held, max(self.most, held), max(self.rise, held - self.last))

    def missed(self, before: int) -> int:
        """Bytes by which a peak between two samples may exceed both. before: bytes at the beginning."""
        return min(self.rise, round(MISSED * (self.most - before)))


@dataclass
class Watch:
    """The largest footprint in rounds, above that of the prepared process or, if that is less, above that before the
    round.

    rest: of the prepared process, in bytes that count; 0 until it is known.
    """

    own: frozenset[Inode]
    folder: Path
    rest: int = 0
    added: int = 0
    sampling: bool = False
    _before: Footprint = Footprint()
    _highest: int = 0
    _mapped: int = 0
    _lowest: int = 0
    _held: Held = field(default_factory=Held)
    _named: dict[Inode, int] = field(default_factory=dict)

    def _whole(self, pids: list[int]) -> Footprint:
        """The footprint of stopped processes, including named files."""
        self._named = named_files(pids, self.folder)
        return footprint(pids, self.own, self._named)

    def settle(self, pids: list[int]) -> int:
        """Take the present footprint as that of the prepared process, and return it."""
        self.rest, self.added = self._whole(pids).counted, 0
        return self.rest

    def begin(self, pids: list[int]) -> None:
        """Start a round; the processes are stopped."""
        for pid in pids:
            proc.reset_peak(pid)
        self._before = self._whole(pids)
        self._highest, self._mapped = self._before.counted, self._before.mapped
        self._lowest = self._mapped
        self._held = Held(self._before.held, self._before.held)

    def sample(self, pids: Iterable[int]) -> None:
        """Measure the processes while they work."""
        now = footprint(pids, self.own, self._named)
        self._highest, self._mapped = max(self._highest, now.counted), max(self._mapped, now.mapped)
        self._lowest = min(self._lowest, now.mapped)
        self._held = self._held.then(now.held)

    def end(self, pids: list[int]) -> None:
        """End the round; the processes are stopped."""
        now = self._whole(pids)
        mapped = max(self._mapped, now.mapped)
        if mapped - self._lowest > DROPPED:  # the mark may hide this much
            mapped = self._lowest
        marked = now.mark - mapped + now.held
        highest = max(self._highest + self._held.missed(self._before.held), now.counted, marked)
        self.added = max(self.added, highest - min(self.rest, self._before.counted))


BLOCK = 512  # bytes of st_blocks
OWNER_WRITES = 0o200  # mode of a link in /proc/PID/fd: the descriptor was opened for writing
Inode = tuple[int, int]  # device and number

_PIDFD_GETFD = 438
_SO_MEMINFO, _MEMINFO = 55, struct.Struct("9I")
_RECEIVED, _SENT, _QUEUED = 0, 2, 5  # positions of byte counts with the kernel's overhead
_SHARED = re.compile(rb"^([0-9a-f]+-[0-9a-f]+) ..[-x]s ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +(.*)$", re.MULTILINE)
_INODES = re.compile(rb"^\S+ \S+ \S+ \S+ (\d+)", re.MULTILINE)
_WITHOUT_NAME = (b"(deleted)", b"/dev/zero")


def open_files(pid: int) -> dict[Inode, int]:
    """Bytes in the process's pipes and sockets, and in files that it can write to or that have no name, by inode.

    Raises WorkerGone if the kernel does not show them to this user.
    """
    sizes = dict[Inode, int]()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError as error:
        raise WorkerGone("hides_memory", "it hides the descriptors of a process, so its memory is unknown") from error
    except OSError:  # it is gone
        return sizes
    process = -1
    for name in names:
        with suppress(OSError):
            path = f"/proc/{pid}/fd/{name}"
            about = os.stat(path)
            if stat.S_ISREG(about.st_mode):
                if os.lstat(path).st_mode & OWNER_WRITES or not about.st_nlink:
                    sizes[about.st_dev, about.st_ino] = about.st_blocks * BLOCK
            elif stat.S_ISFIFO(about.st_mode) or stat.S_ISSOCK(about.st_mode):
                process = os.pidfd_open(pid) if process < 0 else process
                sizes[about.st_dev, about.st_ino] = _buffered(process, int(name), stat.S_ISSOCK(about.st_mode))
    if process >= 0:
        os.close(process)
    return sizes


def _buffered(process: int, number: int, is_socket: bool) -> int:
    """Bytes in a pipe or a socket of the process, through our own descriptor for it. Raises OSError.

    Data waiting in a local socket counts at both ends: either of them may be closed.
    """
    fd = kernel.syscall("pidfd_getfd", _PIDFD_GETFD, process, number, 0)
    try:
        count = 0
        with suppress(OSError):  # a listening socket
            count = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        if is_socket:
            about = _MEMINFO.unpack(kernel.socket_option(fd, socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
            count = max(count, about[_RECEIVED]) + max(about[_SENT], about[_QUEUED])
        return count
    finally:
        os.close(fd)


class Mappings(NamedTuple):
    """Mappings of a process. nameless: bytes of shared mappings of unnamed files, whose pages still exist after a
    process has released them; inodes: numbers of all mapped files.
    """

    nameless: dict[Inode, int]
    inodes: set[int]


def mappings(pid: int) -> Mappings:
    """The mappings of a process; none if it is gone.

    If this user may not examine the unnamed file of a mapping, the whole mapping counts.
    """
    sizes = dict[Inode, int]()
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            text = file.read()
    except OSError:
        return Mappings(sizes, set())
    for span, offset, major, minor, number, name in _SHARED.findall(text):
        if name.endswith(_WITHOUT_NAME[0]) or name.startswith(_WITHOUT_NAME[1]):
            inode = os.makedev(int(major, 16), int(minor, 16)), int(number)
            sizes[inode] = max(sizes.get(inode, 0), _behind(pid, span.decode(), int(offset, 16)))
    return Mappings(sizes, {int(number) for number in set(_INODES.findall(text))})


def _behind(pid: int, span: str, offset: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/map_files/{span}").st_blocks * BLOCK
    except OSError:
        begin, end = (int(word, 16) for word in span.split("-"))
        return offset + end - begin
