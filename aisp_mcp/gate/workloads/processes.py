"""Processes that serve rounds of calls, as handled by the process that owns the clock.

Measured pytest sessions and the workloads of commits talk in the same lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from aisp_mcp.judge import placement

VARIABLE = "AISP_ROUNDS"  # two descriptors: commands in, messages out


@dataclass(frozen=True)
class Command:
    """Command that starts a measured process. folder: the working folder; path: folders of modules that come first;
    program: what gets the arguments; variables: of its environment, in addition to this process's.
    """

    folder: Path
    args: Sequence[str]
    path: Sequence[Path] = ()
    cpus: frozenset[int] = frozenset()
    program: Sequence[str] = (sys.executable, "-P", "-m", "pytest")
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class MeasuredProcess:
    """One measured process. problem: why a benchmark cannot be measured; files: of its modules, at the end;
    settings: its own options that decide what fails.
    """

    process: subprocess.Popen[bytes]
    commands: int  # descriptor: undeliverable data must not wait in a buffer
    messages: IO[str]
    output: IO[bytes]
    problem: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, command: Command) -> Self:
        """Start the process; it stops and waits after collecting its benchmarks."""
        commands_read, commands_write = os.pipe()
        messages_read, messages_write = os.pipe()
        output = tempfile.TemporaryFile()  # noqa: SIM115 (read until the process is closed)
        process = subprocess.Popen(
            [*command.program, *command.args],
            cwd=command.folder,
            env=_environment(command, f"{commands_read},{messages_write}"),
            pass_fds=(commands_read, messages_write),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(commands_read)
        os.close(messages_write)
        if command.cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(process.pid, command.cpus)
        placement.prefer([process.pid])
        return cls(process, commands_write, os.fdopen(messages_read, "r"), output)

    def send(self, **message: Any) -> None:
        """Send a command; does nothing if the process is gone."""
        with contextlib.suppress(BrokenPipeError):
            data = f"{json.dumps(message)}\n".encode()
            while data:
                data = data[os.write(self.commands, data) :]

    def receive(self) -> dict[str, Any] | None:
        """The next message; None if the process is gone."""
        line = self.messages.readline()
        return json.loads(line) if line else None

    def collected(self) -> list[str] | None:
        """Node ids of its benchmarks; None if it could not collect them."""
        message = self.receive()
        self.settings = (message or {}).get("settings", {})
        return None if message is None else message["collected"]

    def until_ready(self, name: str) -> dict[str, Any] | None:
        """Wait for the test to call its function; None if it ends without doing so, and then `problem` gives the
        reason.
        """
        self.problem = ""
        while (message := self.receive()) is not None:
            if message.get("ready") == name:
                return message
            if message.get("problem") == name:
                self.problem = f"{message['outcome']}: {message['message']}"
            if message.get("finished") == name:
                self.problem = self.problem or "the test did not call the fixture"
                return None
        self.problem = self.tail()
        return None

    def round(self, calls: int, own_clock: bool) -> float:
        """Seconds of a round, on this process's clock or on the worker's. Raises EOFError if the process is gone."""
        begin = time.perf_counter()
        self.send(calls=calls)
        message = self.receive()
        seconds = time.perf_counter() - begin
        if message is None:
            raise EOFError(self.tail())
        return float(message["elapsed"]) if own_clock else seconds

    def finish(self, name: str) -> None:
        """Let the test end."""
        self.send(end=True)
        while (message := self.receive()) is not None and message.get("finished") != name:
            pass

    def close(self) -> None:
        """Let the process end, or kill it."""
        self.send(end=True)
        os.close(self.commands)
        while (message := self.receive()) is not None:
            self.files = message.get("files", self.files)
        self.messages.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def tail(self) -> str:
        """The last line of the process's output."""
        self.output.seek(0)
        lines = self.output.read().decode("utf-8", "replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "the process ended")[:300]


def _environment(command: Command, descriptors: str) -> Mapping[str, str]:
    path = [str(folder) for folder in command.path]
    path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS")
    }
    own = {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1", VARIABLE: descriptors}
    return {**environment, **own, **command.variables}


def cores() -> frozenset[int]:
    """Cores of measured processes: all but the first, which is for this process and everything else."""
    usable = sorted(os.sched_getaffinity(0))
    return frozenset(usable[1:] or usable)
