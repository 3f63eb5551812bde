"""Fork servers that outlive the process that starts them, for callers that each make one short comparison.

They listen in their owner's folder. A socket's name stands for everything that decides what is loaded: environment,
modules, cores, interpreter, and the files of this package and of torch. If any of it has changed, no server listens
under the new name, and the caller starts its own. No judged program runs in such a process: each caller is served by a
fork, and each judged program runs in a fork of that one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol import fork_requests
from aisp_mcp.process import python, sockets
from aisp_mcp.process.isolation import NAMESPACES, Level

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
        """Start a server that listens in the folder for that long, or until its socket is removed. Callers that connect
        before it has loaded wait for that. also: modules that most of them will ask for, if they can be imported.
        """
        env = {**dict(self.env), OF_A_JOB: ""}  # an MCP server that ends leaves marked processes alone
        _kept[:] = [process for process in _kept if process.poll() is None]
        with sockets.listening(folder / self.name) as listener:
            where = f"{listener.fileno()}:{self.name}:{seconds:g}"
            _kept.append(self.started(where, [listener.fileno()], also, cwd=folder, env=env))

    def connected(self, folder: Path) -> socket.socket | None:
        """A connection to such a server; None if none listens."""
        return sockets.connected(folder / self.name)


@cache
def _code() -> list[Any]:
    """The state of this package's code; path and time of torch."""
    torch = importlib.util.find_spec("torch")
    origin = torch.origin if torch and torch.origin else ""
    return [*python.code_state(), origin, os.stat(origin).st_mtime_ns if origin else 0]
