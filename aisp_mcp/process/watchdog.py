"""Limits that the kernel does not enforce for an isolated program: total disk space, and a caller that it has stopped.

Both are checked twice a second, from a separate process, at the cost of a few system calls.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from aisp_mcp.process import tree

LOOK_S = 0.5
_FREE_SHARE = 0.5  # share of the initially free space that a program may use, whatever its limit


class Watchdog:
    """Checks a program's disk space and its caller."""

    def __init__(self, folders: Sequence[int], disk_bytes: int | None, caller: int) -> None:
        """folders: descriptors of those that the program may write to. caller: pid of the process that waits for it."""
        self.folders = folders
        self._disk_bytes = disk_bytes
        self._caller = caller
        self._free = [_free_bytes(fd) for fd in folders]
        self._stopped = 0  # consecutive checks that found the caller stopped

    def violation(self) -> str | None:
        """Reason to end the program, or None."""
        for fd, before in zip(self.folders, self._free, strict=True):
            spent = before - _free_bytes(fd)
            limit = min(self._disk_bytes or before, int(_FREE_SHARE * before))
            # Counting files is slow and not needed while the disk is as free as before.
            if spent > limit or (spent > limit // 4 and _used_bytes(fd) > limit):
                return f"it used more than {limit >> 20} MiB of disk space"
        self._stopped = self._stopped + 1 if tree.stopped(self._caller) else 0
        if self._stopped > 1:
            tree.kill([self._caller], signal.SIGCONT)
            return "its parent process was stopped"
        return None


def _free_bytes(fd: int) -> int:
    about = os.statvfs(fd)
    return about.f_bavail * about.f_frsize


def _used_bytes(fd: int) -> int:
    """Bytes allocated by all files below the folder."""
    total = 0
    for _, _, files, folder in os.fwalk(".", dir_fd=fd, onerror=None):
        for name in files:
            try:
                total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
    return total
