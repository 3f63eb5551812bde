"""Memory that the kernel holds for a process outside its resident pages: files, pipes, sockets, and unnamed mappings.

Each is counted by inode, so memory shared by several processes counts once. Memory that cannot be seen from outside,
such as unattached segments, is forbidden in memory benchmarks (process/forbidden.py).
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
from contextlib import suppress
from typing import NamedTuple

from aisp_mcp.judge.parent.processes.gone import WorkerGone
from aisp_mcp.process import kernel

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
