"""python -m aisp_mcp.process.sandbox SPEC ARGV...: become, or start and stand in for, an isolated program.

SPEC is JSON made by aisp_mcp.process.isolation. From L2 on there are three processes: this one (its pid is what the
caller started), below it the first process of a pid namespace, which reaps orphans, and below that the program. When
any of the first two dies, the kernel ends the whole namespace; both die when the caller dies. This process ends the
way the program ended: same code, same signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
from typing import Any

from aisp_mcp.process import kernel

PR_SET_PDEATHSIG = 1
_TMP, _SHM = "/tmp", "/dev/shm"


def main() -> int:
    """Set up what SPEC asks for and run the program. 126 when that is impossible, with the reason on stderr."""
    spec, argv = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        _die_with(os.getppid())
        if spec["namespaces"]:
            return _apart(spec, argv)
        _become(spec, argv)
    except OSError as error:
        print(f"isolation failed: {error}", file=sys.stderr)
    return 126


def _die_with(parent: int) -> None:
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(126)


def _apart(spec: dict[str, Any], argv: list[str]) -> int:
    uid, gid, cwd, caller = os.getuid(), os.getgid(), os.getcwd(), os.getppid()
    flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWPID
    flags |= 0 if spec["network"] else kernel.CLONE_NEWNET
    flags |= 0 if spec["devices"] else kernel.CLONE_NEWIPC
    kernel.unshare(flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Whoever makes a namespace of his own has all rights there, and can set the kernel to work that nobody can stop.
    with contextlib.suppress(OSError):  # in a container that shows /proc/sys read-only it stays possible
        _write("/proc/sys/user/max_user_namespaces", "0")
    _die_with(caller)  # once more: the change of credentials has cleared it
    told, tell = os.pipe2(os.O_CLOEXEC)
    alive, living = os.pipe2(os.O_CLOEXEC)
    first = os.fork()
    if first == 0:
        os.close(living)
        _first(spec, argv, cwd, tell, alive)
    _keep_only(told, living)
    os.waitpid(first, 0)
    return _end_like(os.read(told, 8))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _keep_only(*kept: int) -> None:
    """Close all but these and standard error: a pipe that the program closes must look closed to the caller."""
    low = 0
    for fd in sorted({2, *kept}):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, 1 << 20)


def _first(spec: dict[str, Any], argv: list[str], cwd: str, tell: int, alive: int) -> None:
    """Process 1 of the namespace. Never returns."""
    code = 126 << 8
    try:
        kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([alive], [], [], 0)[0]:  # the launcher, the only one to hold the other end, died before
            os._exit(126)
        if spec["loopback"] and not spec["network"]:
            kernel.raise_loopback()
        _mounts(spec)
        os.chdir(next((place for place, folder in spec["seen_as"].items() if folder == cwd), cwd))
        program = os.fork()
        if program == 0:
            os.close(tell)
            _become(spec, argv)
        _keep_only(tell)
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == program:
                code = status
                break
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"isolation failed: {error}\n".encode())
    finally:
        os.write(tell, str(code).encode())
        os._exit(0)


def _mounts(spec: dict[str, Any]) -> None:
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    hidden = [path for path in (_TMP, "/var/tmp", _SHM) if os.path.isdir(path) and path not in spec["writable"]]
    kept = [(path, _open(path), False) for path in spec["visible"] if _below(path, hidden)]
    kept += [(path, _open(spec["seen_as"].get(path, path)), True) for path in spec["writable"]]
    if spec["read_only"]:
        kernel.set_read_only("/", True, recursive=True)
    for path in hidden:
        kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    for path, fd, writable in sorted(kept):
        os.makedirs(path, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{fd}", path, None, kernel.MS_BIND | kernel.MS_REC)
        if writable and spec["read_only"]:
            kernel.set_read_only(path, False, recursive=False)
        os.close(fd)
    _hide(spec["hidden"])
    _own_proc()


def _hide(paths: list[str]) -> None:
    """Put a file that nobody may open over each of them."""
    for path in paths:
        nothing = f"{_TMP}/nothing"
        os.close(os.open(nothing, os.O_CREAT | os.O_EXCL, 0))
        kernel.mount(nothing, path, None, kernel.MS_BIND)
        os.unlink(nothing)


def _own_proc() -> None:
    """A /proc that shows this namespace alone. Root keeps root's right to its switches, so those become read-only."""
    try:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    except OSError:  # a container that masks parts of /proc allows no new one; the old one is read-only with the rest
        return
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"):
        if os.path.exists(path):
            kernel.mount(path, path, None, kernel.MS_BIND | kernel.MS_REC)
            kernel.set_read_only(path, True, recursive=True)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


def _become(spec: dict[str, Any], argv: list[str]) -> None:
    """Limits, rights, then the program in place of this one. Never returns."""
    try:
        limits = {"file_bytes": resource.RLIMIT_FSIZE, "memory_bytes": resource.RLIMIT_AS}
        if spec["namespaces"]:  # elsewhere the number would count the user's other processes
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
            temporary = [path for path in (_TMP, "/var/tmp", _SHM) if os.path.isdir(path)]
            kernel.landlock(
                [*spec["writable"], *(temporary if spec["namespaces"] else [])], spec["network"] or spec["loopback"]
            )
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"isolation failed: {error}\n".encode())
    os._exit(126)


def _end_like(told: bytes) -> int:
    status = int(told or str(int(signal.SIGKILL)))  # silence: the namespace was killed from outside
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
