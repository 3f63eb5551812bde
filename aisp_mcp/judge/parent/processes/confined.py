"""A confined process of untrusted code: limits, folder, environment and cores."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.parent.processes import procfs as proc
from aisp_mcp.judge.parent.processes.forked import Forked, ForkServer, Libraries, Unsealed, server
from aisp_mcp.judge.protocol.failed_builds import REASON
from aisp_mcp.judge.protocol.shared_memory import NO_DEVICE_MEMORY, UNDESCRIBED
from aisp_mcp.process import isolation, tree
from aisp_mcp.process.isolation import Level

FILE_BYTES = 1 << 30
WORKERS = ("aisp_mcp.judge.candidate.main", "aisp_mcp.judge.candidate.ranks")
PREFERRED = -15  # nice value; 28 times the share of an ordinary process
ON_DEVICE = re.compile(
    f"OutOfMemoryError: CUDA out of memory|CUDA error 2: {NO_DEVICE_MEMORY}|{re.escape(UNDESCRIBED)}"
)
KILLED = re.compile(r"\bSIGKILL\b|\bKilled\b")  # a worker, or a compiler that it started
OWN = re.compile("(?:Contract|Benchmark)Error: ")
NOT_BUILT = re.compile(r"Error building extension '\w+'(?!:)")  # of torch, if the compiler's output was printed
PRINTED, SHOWN = 1 << 20, 200  # bytes of a worker's output that are read, characters of the reason
SMALLER_SIZE = "Choose a smaller size (--size NAME=VALUE), or end other programs."


@dataclass(frozen=True)
class Placement:
    """Placement of one process: env is its whole environment, folder the only one it may write to, cpus its cores once
    it is ready.

    seen: that folder's path as the process sees it, the same for all processes with their own file systems: some
    compilers record the path they run in, and would not recognise their own results elsewhere. core: the one of cpus on
    which its first thread begins every round. hidden: device nodes and folders that it cannot open. memory_bytes: limit
    of its address space. readable: folders that it may read as they change. network: it shares this machine's, for
    ranks on several nodes. forbidden: system calls that fail.
    """

    env: dict[str, str]
    folder: Path
    seen: Path
    cpus: frozenset[int]
    level: Level
    devices: bool
    core: int
    hidden: tuple[Path, ...] = ()
    memory_bytes: int | None = None
    readable: tuple[Path, ...] = ()
    network: bool = False
    forbidden: tuple[str, ...] = ()

    def lend(self, path: Path, into: str = "") -> str:
        """Copy a file into the folder, or one inside it, since the process may not see the original; return the copy's
        path as the process sees it.

        Return the path itself if there is no such file.
        """
        if not path.is_file():
            return str(path)
        (self.folder / into).mkdir(exist_ok=True)
        shutil.copyfile(path, self.folder / into / path.name)
        return str(self.seen / into / path.name)

    def lent(self, setup: dict[str, Any]) -> dict[str, Any]:
        """A worker's set-up; a candidate's, with a copy of what it shares with the baseline, which may be in another
        folder.
        """
        return setup if setup["baseline"] else {**setup, "common": self.lend(Path(setup["common"]))}

    def limits(self) -> dict[str, Any]:
        """Arguments of isolation.confinement()."""
        return {
            "writable": [self.folder],
            "readable": self.readable,
            "seen_as": {self.folder: self.seen},
            "hidden": self.hidden,
            "loopback": True,  # the ranks of a program talk over their own interface
            "network": self.network,
            "devices": self.devices,
            "file_bytes": FILE_BYTES,
            "memory_bytes": self.memory_bytes,
            "forbidden": self.forbidden,
        }


def fork_server(placement: Placement) -> ForkServer:
    """The fork server for workers in this environment."""
    return server(libraries(placement))


def libraries(placement: Placement) -> Libraries:
    """The libraries that the fork server loads, and the environment in which it loads them."""
    return Libraries.of(placement.env, (placement.folder, placement.seen), WORKERS, placement.level, placement.cpus)


def prefer(tasks: Iterable[int]) -> None:
    """Give these threads and their sessions precedence on their cores, if this user may decide that; 0 is the calling
    thread.

    Parallel regions wait for their slowest thread: one server that answers on one of twelve cores delays all of them.
    """
    sessions = dict[int, int]()
    for task in tasks:
        with suppress(OSError):
            sessions[os.getsid(task)] = task or os.getpid()
            os.setpriority(os.PRIO_PROCESS, task, PREFERRED)
    for task in sessions.values():
        proc.set_session_nice(task, PREFERRED)


class Confined:
    """A confined process of untrusted code, and all processes that it starts.

    fresh: it loads its libraries itself, instead of being forked from a process that has (candidate/forks.py).
    oom_kills: processes that the kernel had ended for lack of memory before this one started.
    """

    def __init__(
        self,
        argv: list[str],
        placement: Placement,
        inherited: tuple[int, ...] = (),
        stdin: int = subprocess.DEVNULL,
        fresh: bool = True,
    ) -> None:
        self.placement, self.oom_kills = placement, tree.oom_kills()
        self.output = (placement.folder / "output.log").open("wb")
        started = self._started if fresh or placement.level == "L0" else self._copied
        self.process = started(argv, inherited, stdin)

    def _started(self, argv: list[str], inherited: tuple[int, ...], stdin: int) -> subprocess.Popen[bytes] | Forked:
        placement = self.placement
        process = subprocess.Popen(
            isolation.wrap(argv, placement.level, **placement.limits()),
            pass_fds=inherited,
            stdin=stdin,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=placement.env,
            cwd=placement.folder,
            start_new_session=True,
        )
        tree.first_to_die(process.pid)
        return process

    def _copied(self, argv: list[str], inherited: tuple[int, ...], stdin: int) -> subprocess.Popen[bytes] | Forked:
        """Start a worker's module by forking a process that has loaded its libraries."""
        placement, output = self.placement, self.output.fileno()
        spec = isolation.confinement(argv, placement.level, **placement.limits())
        with open(os.devnull, "rb") as nothing:
            fds = {0: nothing.fileno() if stdin < 0 else stdin, 1: output, 2: output, **{fd: fd for fd in inherited}}
            words = argv[argv.index("-m") + 1 :]
            try:
                return fork_server(placement).start(
                    words, spec, placement.env, placement.folder, fds, first_to_die=True
                )
            except Unsealed:
                return self._started(argv, inherited, stdin)

    def kill(self) -> None:
        if self.output.closed:
            return
        proc.send(proc.tree(self.process.pid), signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the whole tree. A second call does nothing."""
        if self.output.closed:
            return
        self.kill()
        self.process.wait()
        self.output.close()


def with_reason(text: str, folder: Path) -> str:
    """The text of an exception. If an extension was not built, it names the compiler's first error, from the output in
    the worker's folder, which may hold anything.
    """
    if failure := NOT_BUILT.search(text):
        with suppress(OSError), (folder / "output.log").open("rb") as output:
            if reason := REASON.search(output.read(PRINTED).decode(errors="replace")):
                return f"{text[: failure.end()]}: {reason[0].strip()[:SHOWN]}{text[failure.end() :]}"
    return text


def raised(name: str, text: str) -> tuple[str, str]:
    """Message and text for an error in a worker. The harness's own are about what the program returned."""
    own = OWN.match(text)
    return (f"{name} does not fit the contract", text[own.end() :]) if own else (f"{name} raised", text)


class WorkerGone(Exception):
    """The worker cannot run any more rounds. code: raised, crashed, hang, unstoppable, forged, ran_outside, left_cores,
    unreadable, hides_memory or shares_input; text: from the worker, untrusted.
    """

    def __init__(self, code: str, message: str, text: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.text = code, message, text

    def reject_lack_of_memory(self, label: str, kills: int) -> None:
        """Raise BenchmarkError NO_MEMORY if memory ran out: the comparison itself uses part of it.

        label: of the program. kills: tree.oom_kills() before the worker started.
        """
        if self.code == "raised" and ON_DEVICE.search(self.text):
            message = f"The {label} ran out of GPU memory (aisp itself uses part of it)."
        elif KILLED.search(f"{self.message} {self.text}") and tree.oom_kills() > kills:
            message = f"Memory ran out, and the system ended the {label}: workers are the first to be ended."
        else:
            return
        raise BenchmarkError("NO_MEMORY", message, SMALLER_SIZE) from self
