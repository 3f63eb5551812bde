"""python -m aisp_mcp.process.sandbox SPEC ARGV...: become, or start and represent, an isolated program.

SPEC is JSON made by aisp_mcp.process.isolation. An existing process isolates itself by confine(). From L2 on there are
three processes: this one (its pid is the one that the caller started), below it the first process of a pid namespace,
which reaps orphans, and below that the program. If either of the first two dies, the kernel ends the whole namespace;
both die with their parent. This process ends the way the program ended: same code, same signal.

Limits that the kernel does not enforce are checked twice a second, by this process or, at L1, by one next to the
program: total disk space (it ends the program, and itself with SIGXFSZ) and a caller that the program has stopped.

The file system that the program sees is set up in its own mount namespace before it starts. It consists of steps,
applied from the outermost path inwards, so that a folder below a hidden one can still be shown: an empty folder that
the program may write to, an empty folder or an unreadable file in place of something hidden, a folder shown as it is or
through an overlay, and a folder that stays writable. At L3, folders are shown through read-only overlays. A file looks
the same there, but a socket's node differs from the one that its server is bound to, so connections are refused,
whichever process listens and since when. The kernel allows no overlay of a folder with mount points below it: there,
its subfolders are overlaid and its sockets covered.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from aisp_mcp.process import forbidden, kernel, tree

PR_SET_PDEATHSIG = 1
CHANNELS = (3, 4)  # descriptors on which isolation.started_apart() names the program's process and waits for an answer
Program = Callable[[], int]


def main() -> int:
    """Set up what SPEC describes and run the program. Returns 126 if that is impossible, with the reason on stderr."""
    spec, argv = json.loads(sys.argv[1]), sys.argv[2:]
    return confine(spec, lambda: os.execvp(argv[0], argv))


def confine(spec: dict[str, Any], program: Program) -> int:
    """Isolate this process, or children of it, as spec describes, and run the program there; return its exit code, or
    126.

    program: does not return if it becomes another program; otherwise returns its exit code.
    """
    try:
        _die_with(os.getppid())
        if spec["namespaces"]:
            return _apart(spec, program)
        _watch_from_aside(spec)
        _become(spec, program)
    except OSError as error:
        print(f"isolation failed: {error}", file=sys.stderr)
    return 126


def _die_with(parent: int) -> None:
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(126)


def _apart(spec: dict[str, Any], program: Program) -> int:
    cwd, parent = os.getcwd(), os.getppid()
    watchdog = _watchdog(spec)
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID
    flags |= 0 if spec["network"] else kernel.CLONE_NEWNET
    flags |= 0 if spec["devices"] else kernel.CLONE_NEWIPC
    _leave(flags)
    # In a namespace that it creates, a process has all rights and can start kernel work that cannot be stopped.
    with contextlib.suppress(OSError):  # in a container that shows /proc/sys read-only it stays possible
        _write("/proc/sys/user/max_user_namespaces", "0")
    _die_with(parent)  # once more: the change of credentials has cleared it
    status_in, status_out = os.pipe2(os.O_CLOEXEC)
    alive, living = os.pipe2(os.O_CLOEXEC)
    first = os.fork()
    if first == 0:
        os.close(living)
        _first(spec, program, cwd, status_out, alive)
    _keep_only(status_in, living, *watchdog.folders)
    if violation := _watch(watchdog, os.pidfd_open(first)):
        _end(violation, [first])
        return _end_like(str(int(signal.SIGXFSZ)).encode())
    os.waitpid(first, 0)
    return _end_like(os.read(status_in, 8))


def _leave(flags: int) -> None:
    """Leave these namespaces for new ones that belong to a new user namespace, as the same user."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def seals() -> bool:
    """Make the interpreter's file read-only for this process, and for the programs it executes and starts.

    Returns False if that is impossible, or if its children could not have namespaces of their own then.
    """
    try:
        _seal()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                _seal()
                os._exit(0)
            os._exit(1)
    except OSError:
        return False
    return os.waitpid(child, 0)[1] == 0


def _seal() -> None:
    _leave(kernel.CLONE_NEWNS)
    seal(os.readlink("/proc/self/exe"))


def _watchdog(spec: dict[str, Any]) -> Watchdog:
    """Watchdog of the program, over the folders that it will be able to write to."""
    folders = [spec["seen_as"].get(path, path) for path in spec["writable"]]
    opened = [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for path in folders]
    return Watchdog(opened, spec["disk_bytes"], spec.get("caller") or os.getppid())


def _watch(watchdog: Watchdog, program: int) -> str | None:
    """Check until the program (a descriptor of its process) has ended; return the violation if there is one."""
    while not select.select([program], [], [], LOOK_S)[0]:
        if violation := watchdog.violation():
            return violation
    return None


def _end(reason: str, pids: list[int]) -> None:
    """Write the reason, then end these processes and their descendants."""
    with contextlib.suppress(OSError):
        os.write(2, f"ended: {reason}\n".encode())
    for pid in pids:
        tree.kill([pid, *tree.descendants(pid)])


def _watch_from_aside(spec: dict[str, Any]) -> None:
    """Watch from a process that is not a child of this one, which becomes the program at L1."""
    program = os.pidfd_open(os.getpid())
    watchdog = _watchdog(spec)
    pid, child = os.getpid(), os.fork()
    if child == 0:
        if os.fork() == 0:
            _keep_only(program, *watchdog.folders)
            if violation := _watch(watchdog, program):
                _end(violation, [pid])
        os._exit(0)
    os.waitpid(child, 0)
    for fd in (program, *watchdog.folders):
        os.close(fd)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _keep_only(*descriptors: int) -> None:
    """Close all descriptors but these and standard error, so that the caller notices when the program closes a pipe."""
    low = 0
    for fd in sorted({2, *descriptors}):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 20)


def _first(spec: dict[str, Any], program: Program, cwd: str, status_out: int, alive: int) -> None:
    """Process 1 of the namespace. Never returns."""
    code = 126 << 8
    try:
        kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([alive], [], [], 0)[0]:  # the launcher, which alone has the other end, has died
            os._exit(126)
        if spec["loopback"] and not spec["network"]:
            kernel.raise_loopback()
        arrange(spec)
        os.chdir(next((shown_path for shown_path, folder in spec["seen_as"].items() if folder == cwd), cwd))
        (named, name), (answer, go) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        launcher = started = os.fork()
        if started == 0:
            os.close(status_out)
            if spec["account"] is not None:
                os.close(spec["account"])
                high = [os.dup2(fd, 64 + at) for at, fd in enumerate((name, answer))]
                for fd, low in zip(high, CHANNELS, strict=True):
                    os.dup2(fd, low)
                    os.close(fd)
            _become(spec, program)
        os.close(name)
        os.close(answer)
        begin = 0.0
        if spec["account"] is not None:
            started = int(os.read(named, 16) or started)
            begin = time.monotonic()
            os.write(go, b"\n")
        _keep_only(status_out, *({spec["account"]} - {None}))
        usage = Usage(launcher)
        code = usage.wait(started)
        end = time.monotonic()
        _reap_orphans(usage)
        if spec["account"] is not None:
            os.write(spec["account"], json.dumps({"seconds": end - begin, **usage.used}).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"isolation failed: {error}\n".encode())
    finally:
        os.write(status_out, str(code).encode())
        os._exit(0)


class Usage:
    """Usage of a program and its orphans: seconds of CPU time, and the largest resident set in bytes."""

    def __init__(self, launcher: int) -> None:
        """launcher: the child that starts the program, which does not count."""
        self._launcher = launcher
        self.used: dict[str, float] = {"user_s": 0.0, "cpu_s": 0.0, "peak_bytes": 0}

    def wait(self, program: int = 0) -> int:
        """Wait for all children up to this one, and return its status. Raises ChildProcessError after the last."""
        while True:
            pid, status, used = os.wait4(-1, 0)
            if pid != self._launcher:
                self.used["user_s"] += used.ru_utime
                self.used["cpu_s"] += used.ru_utime + used.ru_stime
                self.used["peak_bytes"] = max(self.used["peak_bytes"], 1024 * used.ru_maxrss)
            if pid == program:
                return status


def _reap_orphans(usage: Usage) -> None:
    """End and wait for all remaining processes: otherwise the kernel would not count their usage when this process
    ends.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        usage.wait()


def _become(spec: dict[str, Any], program: Program) -> None:
    """Set limits and rights, then become the program. Never returns."""
    code = 126
    try:
        limits = {"file_bytes": resource.RLIMIT_FSIZE, "memory_bytes": resource.RLIMIT_AS}
        if spec["namespaces"]:  # without a user namespace, the limit would count the user's other processes
            limits["processes"] = resource.RLIMIT_NPROC
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, number in limits.items():
            if spec[name] is not None:
                hard = resource.getrlimit(number)[1]
                value = spec[name] if hard == resource.RLIM_INFINITY else min(spec[name], hard)
                resource.setrlimit(number, (value, value))
        if spec["namespaces"]:
            kernel.drop_capabilities()
        if spec["landlock"]:
            kernel.landlock([*spec["writable"], *temporary(spec)], spec["network"] or spec["loopback"])
        kernel.close_private()
        forbidden.forbid(spec["forbidden"])
        code = program()
    except OSError as error:
        os.write(2, f"isolation failed: {error}\n".encode())
    os._exit(code)


def _end_like(ending: bytes) -> int:
    status = int(ending or str(int(signal.SIGKILL)))  # silence: the namespace was killed from outside
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    return code


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


TMP = "/tmp"
_TEMPORARY = (TMP, "/var/tmp", "/dev/shm")
_SYSTEM = ("/proc", "/sys", "/dev")  # shown as they are: devices and kernel interfaces
_SIZE = "25%"  # bytes of memory for each temporary folder
_BIND, _OVERLAY, _EMPTY, _HIDE, _READ, _WRITE = range(6)  # in this order if a path has several steps


class MountStep(NamedTuple):
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
        if os.path.exists(path):  # a file below an emptied folder has vanished already
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


def _steps(spec: dict[str, Any]) -> list[MountStep]:
    empty = temporary(spec)
    needed = {os.path.realpath(path) for path in spec["needed"]}
    shown = [path for path in spec["visible"] if _below(path, empty)]
    # A secret below an emptied folder has already vanished, unless a folder around it is shown again.
    secrets_left = [path for path in spec["secret"] if not _below(path, empty) or path in shown or _below(path, shown)]
    secret = [path for path in secrets_left if path not in needed]
    visible = {*shown} | {path for path in needed if _below(path, secret)}
    steps = [MountStep(path, _BIND, fd) for path in visible if (fd := _open_if_there(path)) >= 0]
    if spec["landlock"]:
        gone, points = {*empty, *secret}, _mount_points()
        steps += [step for root in ("/", *visible) for step in _without_sockets(root, gone, points)]
    steps += [MountStep(path, _EMPTY) for path in empty] + [MountStep(path, _HIDE) for path in secret]
    steps += [MountStep(path, _READ, _open(path)) for path in spec["readable"]]
    steps += [MountStep(path, _WRITE, _open(spec["seen_as"].get(path, path))) for path in spec["writable"]]
    return sorted(set(steps))


def _mount_points() -> set[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split()[4] for line in file]
    return {os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), path)) for path in points}


def _without_sockets(folder: str, gone: set[str], points: set[str]) -> Iterator[MountStep]:
    """Overlays that show a folder, as few as possible, and covers for the sockets that none of them includes."""
    if folder not in _SYSTEM and not any(_below(point, [folder]) for point in points):
        if (fd := _open_if_there(folder)) >= 0:
            yield MountStep(folder, _OVERLAY, fd)
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path in gone or entry.is_symlink() or entry.is_file(follow_symlinks=False):
                continue
            if not entry.is_dir(follow_symlinks=False):
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    yield MountStep(entry.path, _HIDE)
            elif folder not in _SYSTEM and entry.path not in ("/proc", "/sys"):
                yield from _without_sockets(entry.path, gone, points)


def _apply(step: MountStep, nothing: Nothing, read_only: bool) -> None:
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


def _overlay(step: MountStep, nothing: Nothing) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
