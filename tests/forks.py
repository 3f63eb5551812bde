"""Start `python -m MODULE` or `python -c CODE` as a fork of a process that has its imports (nursery.py).

All test processes of a run share that process, which starts at the first request. What a fork cannot be like, such as
another PYTHONHASHSEED, starts as a new interpreter.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PYTHON = sys.executable  # which a test may replace
SUPERVISOR, STANDBY = "aisp_mcp.jobs.supervisor", "aisp_mcp.jobs.standby"
MODULES = {"aisp_mcp", "aisp_mcp.front.cli.main", "pytest", SUPERVISOR, STANDBY}
ROOM = "ROOM_FOR_VARIABLES"  # in the nursery's environment: the longest one that a fork can show in /proc
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ")  # variables that an interpreter reads when it starts
STAY = b"stay"  # sent to the nursery by who needs it until the connection ends
_ENVIRONMENT = dict(os.environ)  # before any test has changed it
_posix_spawn = os.posix_spawn
_socket = ""  # where the nursery listens


def ask(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Sequence[int], session: bool = False
) -> tuple[int, socket.socket] | None:
    """A fork's pid, and a channel that says its status when it has ended; None if it has to be a new interpreter."""
    words = list(argv[1:])
    safe = words[:1] == ["-P"]
    flag, *words = words[safe:]
    if argv[0] != PYTHON or not (flag == "-c" or (flag == "-m" and words[0] in MODULES)):
        return None
    request = {"argv": list(argv), "flag": flag, "words": words, "safe": safe, "env": dict(env), "cwd": cwd}
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(_socket or start())
        socket.send_fds(channel, [json.dumps({**request, "session": session}).encode()], fds)
        if pid := int(channel.recv(16) or 0):
            return pid, channel
    except OSError:  # a request that is too long for one message
        pass
    channel.close()
    return None


def start() -> str:
    """Start the nursery, or join that of another test process of this run. It ends with the last of them."""
    global _socket
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = Path(tempfile.gettempdir(), f"nursery-{run}") if run else Path(tempfile.mkdtemp(prefix="nursery-"))
    folder.mkdir(mode=0o700, exist_ok=True)
    _socket = str(folder / "socket")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(_socket):
            _launch(_socket)
        stay = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        atexit.register(stay.close)
        stay.connect(_socket)
        stay.send(STAY)
    return _socket


def _launch(path: str) -> None:
    env = {name: value for name, value in _ENVIRONMENT.items() if not name.startswith(("AISP_", "PYTHONPATH"))}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        argv = [PYTHON, str(Path(__file__).with_name("nursery.py")), path, "x" * 2000]  # room, as for variables
        actions = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        os.posix_spawn(PYTHON, argv, {**env, ROOM: "x" * 40_000}, file_actions=actions)


class Popen(subprocess.Popen[Any]):
    """subprocess.Popen, with a fork where it can be one."""

    _channel: socket.socket | None = None

    def _execute_child(self, args: Any, *how: Any) -> None:
        _, preexec, _, passed, cwd, env, _, _, shell, *ends = how
        (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite), rest = ends[:6], ends[6:]
        cwd = os.fspath(os.getcwd() if cwd is None else cwd)
        if not (preexec or passed or shell) and os.path.isdir(cwd):
            fds = [fd if end == -1 else end for fd, end in enumerate((p2cread, c2pwrite, errwrite))]
            born = ask(args, os.environ if env is None else env, cwd, fds, session=rest[5])
            if born:
                self.pid, self._channel = born
                self._child_created = True
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
                return
        super()._execute_child(args, *how)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._channel is None:
            return super()._try_wait(wait_flags)
        self._channel.setblocking(not wait_flags & os.WNOHANG)
        try:
            status = self._channel.recv(16)
        except BlockingIOError:
            return 0, 0
        self._channel.close()
        assert status, "the nursery has gone"
        return self.pid, int(status)

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._channel is None:
            return super()._internal_poll(*args, **options)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(
    argv: Sequence[str], *, input: str | None = None, timeout: float | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """subprocess.run, with a fork where it can be one."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(argv, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(argv, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def spawning(*modules: str) -> Callable[..., int]:
    """os.posix_spawn, which starts the processes of jobs, with forks for some of their modules."""

    def posix_spawn(path: str, argv: Sequence[str], env: Mapping[str, str], **how: Any) -> int:
        if argv[1:3] != ["-P", "-m"] or argv[3] not in modules:
            return _posix_spawn(path, argv, env, **how)
        fds, opened = {0: 0, 1: 1, 2: 2}, list[int]()
        try:
            for kind, fd, *rest in how["file_actions"]:
                if kind == os.POSIX_SPAWN_OPEN:
                    opened.append(os.open(*rest))
                    fds[fd] = opened[-1]
                else:
                    fds[rest[0]] = fd
            born = ask(argv, env, os.getcwd(), list(fds.values()), session=how["setsid"])
        finally:
            for fd in opened:
                os.close(fd)
        if born is None:
            return _posix_spawn(path, argv, env, **how)
        born[1].close()
        return born[0]

    return posix_spawn
