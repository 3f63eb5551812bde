"""Ask another program a short question: an argument list, a deadline, bounded output, the whole group killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LIMIT = 4_000_000


@dataclass(frozen=True)
class ProgramAnswer:
    """Answer of a command. code is None if the program could not be started or did not end in time."""

    code: int | None
    out: str
    err: str
    timed_out: bool = False


def ask(argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> ProgramAnswer:
    """Run argv without a shell and with stdin closed. Never raises for a missing or hanging program.

    env: the whole environment, None for this process's own.
    """
    environ = {**(os.environ if env is None else env), "LC_ALL": "C"}
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environ,
        )
    except OSError as error:
        return ProgramAnswer(None, "", str(error))
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _abandon(child)
        return ProgramAnswer(None, "", f"no answer within {timeout_s:g} s", timed_out=True)
    return ProgramAnswer(child.returncode, _text(out), _text(err))


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill the group and wait a little; a child in an uninterruptible driver call cannot be waited for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)


def _text(raw: bytes) -> str:
    return raw[:_LIMIT].decode("utf-8", "replace")
