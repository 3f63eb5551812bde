"""Run one command to its end: never through a shell, always with a time-out, never leaving a process behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aisp_mcp.errors import ProcessError
from aisp_mcp.process import tree

MARK = "AISP_RUN_MARK"  # in the environment of the command and everything it starts
_CHUNK = 65_536
_TICK_S = 0.02  # how often to check for an exit if the kernel has no pidfd
_DRAIN_S = 0.5  # wait for output of its children after the command itself has ended


@dataclass(frozen=True)
class Completed:
    """Result of a command. returncode is negative for a signal; output is text with replacement characters."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    seconds: float

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out


class _Bounded:
    """Stores the first and the last half of its input."""

    def __init__(self, limit: int) -> None:
        self.half = max(limit // 2, 1)
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room < len(data) else b""
        if (over := len(self.tail) - self.half) > 0:
            del self.tail[:over]
            self.dropped += over

    def text(self) -> str:
        gap = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return (bytes(self.head) + gap + bytes(self.tail)).decode("utf-8", "replace")


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: str | bytes | None = None,
    max_output: int = 1_000_000,
    check: bool = False,
) -> Completed:
    """Run argv and wait, at most timeout_s seconds; then kill the whole tree, daemonised grandchildren included.

    env: the whole environment, None for this process's own. max_output: bytes to keep of each stream, the first and the
    last half. check: raise ProcessError TIMEOUT or CRASHED instead of returning a failure. Raises ProcessError
    NOT_STARTED if the program cannot be executed.
    """
    arguments = tuple(os.fspath(word) for word in argv)
    mark = secrets.token_hex(16)
    began = time.monotonic()
    proc = _start(arguments, {**(os.environ if env is None else env), MARK: mark}, cwd)
    out, err = _Bounded(max_output), _Bounded(max_output)
    data = stdin.encode() if isinstance(stdin, str) else stdin
    with proc:
        try:
            timed_out = _pump(proc, out, err, data, began + timeout_s)
        finally:
            _end(proc, mark)
    done = Completed(
        arguments,
        proc.returncode,
        out.text(),
        err.text(),
        timed_out,
        bool(out.dropped or err.dropped),
        time.monotonic() - began,
    )
    return _checked(done, timeout_s) if check else done


def _start(
    argv: tuple[str, ...], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProcessError(
            "NOT_STARTED", f"Cannot start {argv[0]!r}: {error}.", f"Check that {Path(argv[0]).name} is installed."
        ) from error


def _pump(proc: subprocess.Popen[bytes], out: _Bounded, err: _Bounded, data: bytes | None, deadline: float) -> bool:
    """Transfer data until the command has ended and its streams are empty. Returns True if the deadline came first."""
    with selectors.DefaultSelector() as selector:
        assert proc.stdin is not None
        assert proc.stdout is not None
        assert proc.stderr is not None
        selector.register(proc.stdout, selectors.EVENT_READ, out)
        selector.register(proc.stderr, selectors.EVENT_READ, err)
        _feed_later(selector, proc.stdin, data)
        pidfd = _watch_exit(selector, proc.pid)
        try:
            while True:
                now = time.monotonic()
                if proc.poll() is not None:
                    _drain(selector, min(deadline, now + _DRAIN_S))
                    return False
                if now >= deadline:
                    return True
                _step(selector, deadline - now if pidfd is not None else min(deadline - now, _TICK_S))
        finally:
            if pidfd is not None:
                os.close(pidfd)


def _feed_later(selector: selectors.BaseSelector, stdin: IO[bytes], data: bytes | None) -> None:
    if not data:
        stdin.close()
        return
    os.set_blocking(stdin.fileno(), False)
    selector.register(stdin, selectors.EVENT_WRITE, memoryview(data))


def _watch_exit(selector: selectors.BaseSelector, pid: int) -> int | None:
    try:
        pidfd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    selector.register(pidfd, selectors.EVENT_READ, None)
    return pidfd


def _step(selector: selectors.BaseSelector, wait_s: float) -> None:
    for key, _events in selector.select(wait_s):
        if isinstance(key.data, _Bounded):
            chunk = os.read(key.fd, _CHUNK)
            if chunk:
                key.data.feed(chunk)
            else:
                selector.unregister(key.fileobj)
        elif isinstance(key.data, memoryview):
            _write(selector, key)


def _write(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    rest = key.data
    with contextlib.suppress(BrokenPipeError):
        rest = rest[os.write(key.fd, rest[:_CHUNK]) :]
        if rest:
            selector.modify(key.fileobj, selectors.EVENT_WRITE, rest)
            return
    selector.unregister(key.fileobj)
    assert not isinstance(key.fileobj, int)
    with contextlib.suppress(BrokenPipeError):
        key.fileobj.close()  # type: ignore[attr-defined]


def _drain(selector: selectors.BaseSelector, deadline: float) -> None:
    """Read the remaining output; a grandchild may hold the pipes open for ever, so stop at the deadline."""
    for key in list(selector.get_map().values()):
        if not isinstance(key.data, _Bounded):
            selector.unregister(key.fileobj)
    while selector.get_map() and (left := deadline - time.monotonic()) > 0:
        _step(selector, left)


def _end(proc: subprocess.Popen[bytes], mark: str) -> None:
    """Kill every process: first the group, then those that carry the mark."""
    if proc.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.wait()
    tree.sweep_marked(MARK, mark)


def _checked(done: Completed, timeout_s: float) -> Completed:
    command = shlex.join(done.argv)[:200]
    if done.timed_out:
        raise ProcessError("TIMEOUT", f"`{command}` took longer than {timeout_s:g} s and was killed.", _last(done))
    if done.returncode != 0:
        raise ProcessError("CRASHED", f"`{command}` ended with code {done.returncode}.", _last(done))
    return done


def _last(done: Completed) -> str | None:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"Its last output: {lines[-1][:300]}" if lines else None
