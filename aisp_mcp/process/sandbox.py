"""python -m aisp_mcp.process.sandbox SPEC ARGV...: become, or start and represent, an isolated program.

SPEC is JSON made by aisp_mcp.process.isolation. An existing process isolates itself by confine(). From L2 on there are
three processes: this one (its pid is the one that the caller started), below it the first process of a pid namespace,
which reaps orphans, and below that the program. If either of the first two dies, the kernel ends the whole namespace;
both die with their parent. This process ends the way the program ended: same code, same signal. It ends the program,
and itself with SIGXFSZ, if the program exceeds its disk space or stops the caller; at L1, a process next to the program
does so.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from aisp_mcp.process import forbidden, kernel, mounts, tree
from aisp_mcp.process.watchdog import LOOK_S, Watchdog

PR_SET_PDEATHSIG = 1
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
    mounts.seal(os.readlink("/proc/self/exe"))


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
        mounts.arrange(spec)
        os.chdir(next((shown_path for shown_path, folder in spec["seen_as"].items() if folder == cwd), cwd))
        started = os.fork()
        if started == 0:
            os.close(status_out)
            _become(spec, program)
        _keep_only(status_out)
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == started:
                code = status
                break
        _reap_orphans()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"isolation failed: {error}\n".encode())
    finally:
        os.write(status_out, str(code).encode())
        os._exit(0)


def _reap_orphans() -> None:
    """End and wait for all remaining processes: otherwise the kernel would not count their usage when this process
    ends.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


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
            kernel.landlock([*spec["writable"], *mounts.temporary(spec)], spec["network"] or spec["loopback"])
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


if __name__ == "__main__":
    sys.exit(main())
