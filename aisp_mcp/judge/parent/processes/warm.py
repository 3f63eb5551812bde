"""Fork servers that outlive the process that starts them, for callers of which each makes one short comparison.

They listen in a folder of their owner. A name there stands for everything that decides what is loaded: environment,
modules, cores, interpreter, and the files of this package and of torch. Where any of it has changed, nothing of that
name listens, and a caller starts a server of its own. No program that is judged runs in such a process: each caller is
served by a copy of it, and each judged program runs in a copy of that one.
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
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import aisp_mcp
from aisp_mcp.judge.parent.processes import fork_server
from aisp_mcp.process import python
from aisp_mcp.process.isolation import NAMESPACES, Level

NOWHERE = "/nonexistent"  # instead of the folders of a single process, while libraries are loaded
OF_A_JOB = "AISP_JOB_ID"  # says nothing about libraries, and marks processes that end with their job


@dataclass(frozen=True)
class Libraries:
    """What a fork server loads, and where: the variables of its environment, modules, and cores (none for those of the
    caller). sealed: its interpreter's file is read-only.
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
        """Of processes in this environment.

        level: of its copies; from L2 on their interpreter's file is read-only, whichever way leads there.
        cpus: on which libraries are loaded, of which some count the cores then and for ever.
        folders: those of a single process; variables that name a place in them say nothing about libraries.
        """
        below = tuple(map(str, folders))
        common = sorted((name, NOWHERE if value.startswith(below) else value) for name, value in env.items())
        return cls(tuple(common), tuple(modules), level in NAMESPACES, tuple(sorted(cpus)))

    @property
    def key(self) -> str:
        """The same for processes that can be copies of the same server within one process."""
        return json.dumps([self.env, self.modules, self.sealed])

    @cached_property
    def name(self) -> str:
        """Of the socket at which a server with these libraries listens."""
        env = [(name, value) for name, value in self.env if value and name != OF_A_JOB]
        facts = [env, self.modules, self.sealed, self.cpus, sys.executable, _newest_file()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    def started(self, where: str, pass_fds: Sequence[int] = (), **how: Any) -> subprocess.Popen[bytes]:
        """A server. where: as fork_server.py has it."""
        words = [where, str(int(self.sealed)), ",".join(map(str, self.cpus)), *self.modules]
        return subprocess.Popen(
            python.module(fork_server.MODULE, *words),
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **{"env": dict(self.env), **how},
        )

    def keep_loaded(self, folder: Path, seconds: float) -> None:
        """Start a server that listens in the folder for that long, or until its socket is removed."""
        env = {name: value for name, value in self.env if name != OF_A_JOB}
        self.started(f"{self.name}:{seconds:g}", cwd=folder, env=env).wait()

    def connected(self, folder: Path) -> socket.socket | None:
        """A connection to such a server; None where none listens."""
        channel = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
            try:
                channel.connect(f"/proc/self/fd/{at}/{self.name}")  # the path itself may be too long for a socket
                return channel
            finally:
                os.close(at)
        channel.close()
        return None


def _newest_file() -> list[Any]:
    """Number and newest time of this package's files, and path and time of torch."""
    times = [path.stat().st_mtime_ns for path in Path(aisp_mcp.__file__).parent.rglob("*.py")]
    torch = importlib.util.find_spec("torch")
    origin = torch.origin if torch and torch.origin else ""
    return [len(times), max(times), origin, os.stat(origin).st_mtime_ns if origin else 0]
