"""Memory that the calls of a worker add, over its whole process tree: anonymous, shared, and held through files.

Resident memory alone misleads in two ways. A scratch area in an anonymous file, or in the page cache, is not resident
in any process. And library pages are resident: a process that releases them before it allocates seems to add nothing.
So this counts anonymous and shared memory, plus what the kernel holds in pipes, sockets, and files that a process can
write to or that have no name (kernel_memory.py). It does not count pages of mapped files. Short peaks come from the
kernel's high-water mark, if mapped files cannot explain any part of it. The kernel keeps no such mark of what it holds
through files: between two samples it may have been higher than in both, so the largest rise between two samples is
added, up to an eighth of the whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.parent.processes.kernel_memory import BLOCK, Inode, mappings, open_files

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
