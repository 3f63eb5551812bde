"""Processes forked from one with its libraries loaded (candidate/forks.py): the caller's handle on them.

A fork server may outlive the process that starts it, for callers that each make one short comparison. It listens in its
owner's folder. A socket's name stands for everything that decides what is loaded: environment, modules, cores,
interpreter, and the files of this package and of torch. If any of it has changed, no server listens under the new name,
and the caller starts its own. No judged program runs in such a process: each caller is served by a fork, and each
judged program runs in a fork of that one.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.protocol import fork_requests
from aisp_mcp.process import python, sockets
from aisp_mcp.process.isolation import NAMESPACES, Level

ASKED = ".asked"  # end of the name of a file that describes a missing server
ANSWER_S = 120.0  # for loading libraries; for any answer: a candidate at L1 can stop the server

_servers: dict[str, ForkServer] = {}
_lock = threading.Lock()
_folder: Path | None = None  # of servers that listen
_is_followed: Callable[[], bool] | None = None
_asks = False  # whether to ask for servers that are missing there


@atexit.register
def _close() -> None:
    """End all servers of this process."""
    for server in _servers.values():
        server.close()


def server(libraries: Libraries) -> ForkServer:
    """The server with these libraries loaded; started if there is none yet. It lives as long as this process. The first
    start() waits for it; this function does not.
    """
    key = json.dumps([os.getpid(), libraries.key])
    with _lock:
        running = _servers.get(key)
        if running is None or not (running.alive or running.unsealed):
            running = _servers[key] = ForkServer(libraries, _connection(libraries))
        return running


@contextmanager
def loaded_in(folder: Path, is_followed: Callable[[], bool] | None = None, asks: bool = False) -> Iterator[None]:
    """Use the servers that an earlier process has started in the folder, if they match.

    is_followed: asked at the end of a comparison; True if another process will soon compare a candidate with the same
    specification, and nothing else is to be measured before. asks: for servers that are missing, which
    start_asked_for() then starts for later processes.
    """
    global _folder, _is_followed, _asks
    before = _folder, _is_followed, _asks
    _folder, _is_followed, _asks = folder, is_followed, asks
    try:
        yield
    finally:
        _folder, _is_followed, _asks = before


def start_asked_for(folder: Path, seconds: float) -> None:
    """Start the servers that comparisons have missed in the folder (Libraries.keep_loaded)."""
    for path in folder.glob(f"*{ASKED}"):
        with suppress(OSError, ValueError):  # another process starts it, or has been interrupted while it asked
            env, modules, sealed, cpus = json.loads(path.read_text())
            path.unlink()
            libraries = Libraries(tuple(map(tuple, env)), tuple(modules), sealed, tuple(cpus))
            libraries.keep_loaded(folder, seconds)


def kept_folder(for_next: bool = False) -> Path | None:
    """The folder of loaded_in(). for_next: only if another comparison follows."""
    return _folder if not for_next or (_is_followed and _is_followed()) else None


def _connection(libraries: Libraries) -> socket.socket | None:
    channel = libraries.connected(_folder) if _folder else None
    if _folder and _asks and channel is None:
        libraries.ask_for(_folder)
    return channel


class Unsealed(Exception):
    """This machine cannot hide the interpreter's file from forks: every process starts separately."""


class ForkServer:
    """A process with its libraries loaded, and the socket through which it is asked to fork: a new process with these
    libraries, or one at the other end of a connection, which is not a child of this one.
    """

    def __init__(self, libraries: Libraries | None, channel: socket.socket | None = None) -> None:
        """channel: to a server that listens. libraries: of a server to start without it, or where it ends unasked."""
        self._lock, self._loaded, self.unsealed = threading.Lock(), False, False
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: int | None = None  # of a server that is not a child, once it has answered
        self._errors: IO[bytes] | None = None  # of a child, until it has loaded
        self._libraries = libraries
        if channel:
            self._channel = channel
        else:
            self._start()

    def _start(self) -> None:
        assert self._libraries
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed later)
        self._channel, other = socket.socketpair()
        self._process = self._libraries.started(str(other.fileno()), [other.fileno()], stderr=self._errors)
        other.close()

    def close(self) -> None:
        """End the server and the processes that it started."""
        if self._process:
            self._process.kill()  # it may be stopped, or hang in an import
            self._process.wait()
        elif self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._channel.close()
        self._close_errors()

    @property
    def alive(self) -> bool:
        """True until it ended."""
        if self._process:
            return self._process.poll() is None
        if self._handle is None:
            return self._channel.fileno() >= 0
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not poll.poll(0)

    def start(
        self,
        argv: Sequence[str],
        spec: dict[str, Any],
        env: Mapping[str, str],
        cwd: Path,
        fds: Mapping[int, int],
        first_to_die: bool = False,
    ) -> Forked:
        """A process that runs a module's main(). argv: name of the module and its arguments. spec: of isolation.

        fds: descriptor in this process by its number in the new one, which gets no others. first_to_die: when memory
        runs out, together with everything it starts. Raises Unavailable FORK_SERVER, and Unsealed.
        """
        description: dict[str, Any] = {
            "env": dict(env),
            "cwd": str(cwd),
            "cpus": sorted(os.sched_getaffinity(0)),
            "numbers": [*fds],
            "first_to_die": first_to_die,
        }
        request = {"argv": [*argv], "spec": {**spec, "caller": os.getpid()}, **description}
        with self._lock:
            try:
                self._channel.settimeout(ANSWER_S)
                self._await_loaded()
                fork_requests.send(self._channel, request, list(fds.values()))
                data, handles, _, _ = socket.recv_fds(self._channel, 4, 1)
            except OSError as error:
                raise self._gone(str(error)) from error
        if not handles:
            raise self._gone("its socket is closed")
        return Forked(self, int.from_bytes(data, "little"), handles[0])

    def load(self, modules: Sequence[str]) -> None:
        """Ask it to import these modules before it forks again, without waiting for it. Missing ones are ignored."""
        with self._lock, suppress(OSError):  # start() reports a server that has ended
            if modules:
                fork_requests.send(self._channel, {"load": [*modules]}, [])

    def status(self, pid: int) -> int:
        """Exit code of a fork that has ended, or the negative number of the signal that ended it."""
        with self._lock:
            with suppress(OSError):
                fork_requests.send(self._channel, {"ended": pid}, [])
                if data := self._channel.recv(4):
                    return int.from_bytes(data, "little", signed=True)
            self.close()
        return -signal.SIGKILL  # it ended with the server

    def hand_on(
        self, process: Forked, listener: socket.socket, name: str, words: Sequence[str], fds: Sequence[int]
    ) -> None:
        """Have it keep a process, these words and descriptors for the next caller who connects to the listener, until
        the file with that name in its folder is removed. This handle is of no use afterwards.
        """
        request = {"hand on": name, "pid": process.pid, "words": [*words], "numbers": [0] * (1 + len(fds))}
        with self._lock, self._channel:
            fork_requests.send(self._channel, request, [listener.fileno(), *fds])

    def handed_on(self) -> tuple[Forked, list[str], list[int]]:
        """The process, words and descriptors that an earlier caller has handed on. Raises OSError."""
        with self._lock:
            self._channel.settimeout(ANSWER_S)
            self._await_loaded()
            received = fork_requests.receive(self._channel)
        if received is None:
            raise OSError("it has ended")
        request, (handle, *fds) = received
        return Forked(self, request["pid"], handle), request["words"], fds

    def _await_loaded(self) -> None:
        if not (self._loaded or self.unsealed):
            reply, handles = self._greeting()
            if not reply and self._process is None and self._libraries:  # it has just ended: nobody came for long
                self._channel.close()
                self._start()
                self._channel.settimeout(ANSWER_S)
                reply, handles = self._greeting()
            if not reply:
                code = self._process.wait() if self._process else "an unknown status"
                raise OSError(f"it ended with {code} while it loaded libraries{self._last_words()}")
            self._handle = handles[0] if handles else None
            self.unsealed, self._loaded = reply == fork_requests.UNSEALED, reply == fork_requests.LOADED
            self._close_errors()
        if self.unsealed:
            raise Unsealed

    def _greeting(self) -> tuple[bytes, list[int]]:
        """Its state and a handle, once it has loaded; nothing if it has ended."""
        with suppress(ConnectionResetError):  # it ended before it read what load() had sent
            reply, handles, _, _ = socket.recv_fds(self._channel, 1, 1)
            return reply, handles
        return b"", []

    def _close_errors(self) -> None:
        if self._errors:
            self._errors.close()
            self._errors = None

    def _last_words(self) -> str:
        if not self._errors:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1][:300]})" if lines else ""

    def _gone(self, why: str) -> Unavailable:
        self.close()  # a late answer would be taken for the next request's
        return Unavailable("FORK_SERVER", f"The process that starts workers does not answer: {why}.")


class Forked:
    """One fork: the part of subprocess.Popen that its users need."""

    def __init__(self, owner: ForkServer, pid: int, handle: int) -> None:
        self._owner, self.pid, self._handle = owner, pid, handle
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Exit code when it has ended. Raises subprocess.TimeoutExpired."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def kill(self) -> None:
        """End the process and everything it started."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if poll.poll(None if seconds is None else 1000 * seconds):
                self.returncode = self._owner.status(self.pid)
                os.close(self._handle)
        return self.returncode


NOWHERE = "/nonexistent"  # in place of a process's own folders, while libraries are loaded
OF_A_JOB = "AISP_JOB_ID"  # irrelevant to libraries; marks processes of jobs, which end with that job
_kept: list[subprocess.Popen[bytes]] = []  # to be reaped when they have ended


@dataclass(frozen=True)
class Libraries:
    """The libraries that a fork server loads, with its environment variables and cores (none: the caller's).

    sealed: its interpreter's file is read-only.
    """

    env: tuple[tuple[str, str], ...]
    modules: tuple[str, ...]
    sealed: bool
    cpus: tuple[int, ...]

    @classmethod
    def of(
        cls,
        env: Mapping[str, str],
        folders: Sequence[Path],
        modules: Sequence[str],
        level: Level = "L1",
        cpus: Iterable[int] = (),
    ) -> Libraries:
        """The libraries for processes in this environment.

        level: of its forks; from L2 on their interpreter's file is read-only by any path. cpus: the cores on which
        libraries are loaded; some libraries count the cores only then. folders: those of a single process; variables
        that point into them do not matter for libraries.
        """
        below = tuple(map(str, folders))
        common = sorted((name, NOWHERE if value.startswith(below) else value) for name, value in env.items())
        return cls(tuple(common), tuple(modules), level in NAMESPACES, tuple(sorted(cpus)))

    @property
    def key(self) -> str:
        """Equal for processes that can be forks of the same server within one process."""
        return json.dumps([self.env, self.modules, self.sealed])

    @cached_property
    def name(self) -> str:
        """Name of the socket at which a server with these libraries listens."""
        env = [(name, value) for name, value in self.env if value and name != OF_A_JOB]
        facts = [env, self.modules, self.sealed, self.cpus, sys.executable, _code()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    def started(
        self, where: str, pass_fds: Sequence[int] = (), also: Sequence[str] = (), **how: Any
    ) -> subprocess.Popen[bytes]:
        """Start a server. where, also: as in candidate/forks.py."""
        words = [
            where,
            str(int(self.sealed)),
            ",".join(map(str, self.cpus)),
            *self.modules,
            fork_requests.OPTIONAL,
            *also,
        ]
        return subprocess.Popen(
            python.module(fork_requests.MODULE, *words),
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            **{"env": dict(self.env), "stderr": subprocess.DEVNULL, **how},
        )

    def keep_loaded(self, folder: Path, seconds: float, also: Sequence[str] = ()) -> None:
        """Start a server that listens in the folder until nobody has connected for that long, or its socket is removed;
        do nothing if there is one. Callers that connect before it has loaded wait for that. also: modules that most of
        them will ask for, if they can be imported.
        """
        env = {**dict(self.env), OF_A_JOB: ""}  # an MCP server that ends leaves marked processes alone
        _kept[:] = [process for process in _kept if process.poll() is None]
        with _locked(folder):
            if running := self.connected(folder):
                running.close()
                return
            (folder / self.name).unlink(missing_ok=True)  # of one that was killed
            with sockets.listening(folder / self.name) as listener:
                where = f"{listener.fileno()}:{self.name}:{seconds:g}"
                _kept.append(self.started(where, [listener.fileno()], also, cwd=folder, env=env))

    def ask_for(self, folder: Path) -> None:
        """Ask whoever calls start_asked_for() for such a server."""
        partial = folder / f"{self.name}.{os.getpid()}"
        with suppress(OSError), os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump([self.env, self.modules, self.sealed, self.cpus], file)
            partial.rename(folder / f"{self.name}{ASKED}")

    def connected(self, folder: Path) -> socket.socket | None:
        """A connection to such a server; None if none listens."""
        return sockets.connected(folder / self.name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that no two processes replace a socket."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@cache
def _code() -> list[Any]:
    """The state of this package's code; path and time of torch."""
    torch = importlib.util.find_spec("torch")
    origin = torch.origin if torch and torch.origin else ""
    return [*python.code_state(), origin, os.stat(origin).st_mtime_ns if origin else 0]
