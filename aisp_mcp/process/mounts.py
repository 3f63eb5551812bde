"""The file system that an isolated program sees, set up in its own mount namespace before the program starts.

It consists of steps, applied from the outermost path inwards, so that a folder below a hidden one can still be shown:
an empty folder that the program may write to, an empty folder or an unreadable file in place of something hidden, a
folder shown as it is or through an overlay, and a folder that stays writable.

At L3, folders are shown through read-only overlays. A file looks the same there, but a socket's node differs from the
one that its server is bound to, so connections are refused, whichever process listens and since when. The kernel allows
no overlay of a folder with mount points below it: there, its subfolders are overlaid and its sockets covered.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from aisp_mcp.process import kernel

TMP = "/tmp"
_TEMPORARY = (TMP, "/var/tmp", "/dev/shm")
_SYSTEM = ("/proc", "/sys", "/dev")  # shown as they are: devices and kernel interfaces
_SIZE = "25%"  # bytes of memory for each temporary folder
_BIND, _OVERLAY, _EMPTY, _HIDE, _READ, _WRITE = range(6)  # in this order if a path has several steps


class Step(NamedTuple):
    """One change of the mounts at a path. fd: the folder to show there, opened before anything was hidden."""

    path: str
    kind: int
    fd: int = -1


class Nothing(NamedTuple):
    """Descriptors of an empty folder and of a file that cannot be opened."""

    folder: int
    file: int

    def cover(self, path: str) -> None:
        """Mount the file over another one."""
        kernel.mount(f"/proc/self/fd/{self.file}", path, None, kernel.MS_BIND)


def temporary(spec: dict[str, Any]) -> list[str]:
    """Folders that the program sees as empty."""
    return [path for path in _TEMPORARY if os.path.isdir(path) and path not in spec["writable"]]


def arrange(spec: dict[str, Any]) -> None:
    """Set up the view of the file system that spec describes. Raises OSError."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    steps = _steps(spec)
    if spec["read_only"]:
        kernel.set_read_only("/", True, recursive=True)
    nothing = _nothing()
    for step in steps:
        _apply(step, nothing, spec["read_only"])
    for step in steps:
        # A hidden folder below an emptied one is not a mount: it vanished, and is back as the path to a shown folder.
        if step.kind == _HIDE and os.path.isdir(step.path) and os.path.ismount(step.path):
            kernel.set_read_only(step.path, True, recursive=False)
    for path in spec["hidden"]:
        nothing.cover(path)
    for fd in {nothing.folder, nothing.file, *(step.fd for step in steps)} - {-1}:
        os.close(fd)
    _own_proc()


def seal(file: str) -> None:
    """Make one file read-only in this process's view."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount(file, file, None, kernel.MS_BIND)
    kernel.set_read_only(file, True, recursive=False)


def _nothing() -> Nothing:
    """Create both, in a file system that later steps cover."""
    kernel.mount("tmpfs", TMP, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=64k")
    os.mkdir(f"{TMP}/empty", 0o555)
    os.close(os.open(f"{TMP}/nothing", os.O_CREAT | os.O_EXCL, 0))
    return Nothing(_open(f"{TMP}/empty"), _open(f"{TMP}/nothing"))


def _steps(spec: dict[str, Any]) -> list[Step]:
    empty = temporary(spec)
    needed = {os.path.realpath(path) for path in spec["needed"]}
    shown = [path for path in spec["visible"] if _below(path, empty)]
    # A secret below an emptied folder has already vanished, unless a folder around it is shown again.
    secrets_left = [path for path in spec["secret"] if not _below(path, empty) or path in shown or _below(path, shown)]
    secret = [path for path in secrets_left if path not in needed]
    visible = {*shown} | {path for path in needed if _below(path, secret)}
    steps = [Step(path, _BIND, fd) for path in visible if (fd := _open_if_there(path)) >= 0]
    if spec["landlock"]:
        gone, points = {*empty, *secret}, _mount_points()
        steps += [step for root in ("/", *visible) for step in _without_sockets(root, gone, points)]
    steps += [Step(path, _EMPTY) for path in empty] + [Step(path, _HIDE) for path in secret]
    steps += [Step(path, _READ, _open(path)) for path in spec["readable"]]
    steps += [Step(path, _WRITE, _open(spec["seen_as"].get(path, path))) for path in spec["writable"]]
    return sorted(set(steps))


def _mount_points() -> set[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split()[4] for line in file]
    return {os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), path)) for path in points}


def _without_sockets(folder: str, gone: set[str], points: set[str]) -> Iterator[Step]:
    """Overlays that show a folder, as few as possible, and covers for the sockets that none of them includes."""
    if folder not in _SYSTEM and not any(_below(point, [folder]) for point in points):
        if (fd := _open_if_there(folder)) >= 0:
            yield Step(folder, _OVERLAY, fd)
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path in gone or entry.is_symlink() or entry.is_file(follow_symlinks=False):
                continue
            if not entry.is_dir(follow_symlinks=False):
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    yield Step(entry.path, _HIDE)
            elif folder not in _SYSTEM and entry.path not in ("/proc", "/sys"):
                yield from _without_sockets(entry.path, gone, points)


def _apply(step: Step, nothing: Nothing, read_only: bool) -> None:
    """Apply one step; paths that no longer exist are skipped."""
    if step.kind == _EMPTY:
        kernel.mount("tmpfs", step.path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=1777,size={_SIZE}")
    elif step.kind == _HIDE and os.path.isdir(step.path):
        kernel.mount("tmpfs", step.path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
    elif step.kind == _HIDE and os.path.lexists(step.path):
        nothing.cover(step.path)
    elif step.kind == _OVERLAY:
        _overlay(step, nothing)
    elif step.kind in (_BIND, _READ, _WRITE):
        os.makedirs(step.path, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{step.fd}", step.path, None, kernel.MS_BIND | kernel.MS_REC)
        if step.kind == _WRITE and read_only:
            kernel.set_read_only(step.path, False, recursive=False)


def _overlay(step: Step, nothing: Nothing) -> None:
    """Show a folder through an overlay; an empty one if a mount's file system cannot be a layer, such as FAT.

    Raises OSError for an ordinary folder.
    """
    layers = f"lowerdir=/proc/self/fd/{step.fd}:/proc/self/fd/{nothing.folder}"  # two are demanded
    try:
        flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("overlay", step.path, "overlay", flags, layers)
    except OSError:
        if not os.path.ismount(step.path):
            raise
        kernel.mount(f"/proc/self/fd/{nothing.folder}", step.path, None, kernel.MS_BIND)


def _own_proc() -> None:
    """Mount a /proc that shows only this namespace. Root keeps the right to change its settings, so those become
    read-only.
    """
    try:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    except OSError:  # a container that masks parts of /proc allows no new one; the old one is read-only like the rest
        return
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"):
        if os.path.exists(path):
            kernel.mount(path, path, None, kernel.MS_BIND | kernel.MS_REC)
            kernel.set_read_only(path, True, recursive=True)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _open_if_there(path: str) -> int:
    """A descriptor, or -1: a mount point may be below another one, or hidden from this user."""
    try:
        return _open(path)
    except OSError:
        return -1


def _below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(folder.rstrip("/") + "/") and path != folder for folder in folders)
