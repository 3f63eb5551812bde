"""Jobs on another machine through OpenSSH: its keys, configuration and jump hosts are those that `ssh` itself uses.

One connection for all jobs of a host. Over it goes what the host lacks, by hash, and then requests to `host.py`, which
runs there with the package that was sent. A job there does not depend on the connection; it is submitted under our id,
so that submitting it again has no effect. In order: the connection, the executor, and the check for `aisp doctor`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from aisp_mcp.errors import AispError, Unavailable
from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors import handover, parcels, receiving, sending
from aisp_mcp.jobs.executors.base import ExecutorState, Submission
from aisp_mcp.process import tree
from aisp_mcp.store.records.job_state import JobState

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
ANSWER_S, START_S = 30.0, 60.0
UNREACHABLE_S, SILENT_S = 60.0, 1800.0  # unsent jobs are given up if a host never answered, or has fallen silent
AGAIN_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # between attempts to connect
_NOISE_BYTES = 256_000
# Words of ssh after which another attempt may succeed.
_PASSING = (
    *("Connection refused", "Connection reset", "Connection closed", "closed by remote host", "timed out"),
    *("Broken pipe", "No route to host", "Network is unreachable", "Temporary failure"),
    *("kex_exchange_identification", "lost connection", "not responding"),
)
_PYTHON = "import sys; sys.version_info >= (3, 11) or sys.exit('aisp needs Python 3.11, not ' + sys.version.split()[0])"


class LostError(Exception):
    """The connection could not be made or has ended. final: another attempt would fail as well."""

    def __init__(self, message: str, final: bool = False, code: str = "SSH_FAILED") -> None:
        super().__init__(message)
        self.final, self.code = final, code


class Connection:
    """A process of ssh, and the one that it starts there; call ready() first. Raises LostError and Unavailable."""

    def __init__(self, url: str, python: str) -> None:
        self.url = url
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        source = Path(receiving.__file__).read_bytes()
        program = f"{_PYTHON}; exec(compile(sys.stdin.buffer.read({len(source)}), 'receiving.py', 'exec'))"
        command = f"exec {shlex.quote(python)} -c {shlex.quote(program)}"
        argv = ["ssh", *OPTIONS, *ALIVE, "--", url, command]
        try:
            self._ssh = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            message = f"ssh cannot be started: {error.strerror}"
            raise Unavailable("NO_SSH", message, "apt-get install openssh-client") from error
        assert self._ssh.stdin
        assert self._ssh.stdout
        self._in, self._out = self._ssh.stdin.fileno(), self._ssh.stdout.fileno()
        for end in (self._in, self._out):
            os.set_blocking(end, False)
        self._read = bytearray()
        try:
            self._write(source, START_S)
        except BaseException:
            self.close()
            raise

    def ready(self) -> None:
        """Wait until the host is logged in to and Python runs there: most of a second, in which others may work."""
        self._answer(START_S)

    def close(self) -> None:
        """End ssh; jobs there go on."""
        tree.kill([self._ssh.pid])
        self._ssh.wait()
        for end in (self._ssh.stdin, self._ssh.stdout, self._errors):
            if end:
                with contextlib.suppress(OSError):
                    end.close()

    def call(
        self, op: str, payload: Iterable[bytes] = (), timeout_s: float = ANSWER_S, **request: Any
    ) -> dict[str, Any]:
        """One request and its answer. timeout_s: without any progress."""
        self._write(json.dumps({"op": op, **request}).encode() + b"\n", timeout_s)
        for chunk in payload:
            self._write(chunk, timeout_s)
        answer = self._answer(timeout_s)
        if "error" in answer:
            raise Unavailable(answer["error"], f"{self.url}: {answer['message']}", HINTS.get(answer["error"]))
        return answer

    def following(self, size: int) -> bytes:
        """The next bytes after an answer, as many as asked for."""
        while len(self._read) < size:
            self._more(ANSWER_S)
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken

    def _write(self, data: bytes, timeout_s: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._in, selectors.EVENT_WRITE, timeout_s)
            try:
                view = view[os.write(self._in, view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._lost() from None

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        skipped = 0
        while True:
            line, found, _ = self._read.partition(b"\n")
            if found:
                del self._read[: len(line) + 1]
                at = line.find(receiving.MARK.encode())
                if at >= 0:
                    answer: dict[str, Any] = json.loads(line[at + len(receiving.MARK) :])
                    return answer
                skipped += len(line)
            else:
                self._more(timeout_s)
            if skipped > _NOISE_BYTES:
                raise LostError(f"{self.url} prints much at every login, and no answer", final=True)

    def _more(self, timeout_s: float) -> None:
        self._wait(self._out, selectors.EVENT_READ, timeout_s)
        try:
            chunk = os.read(self._out, receiving.CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            raise self._lost()
        self._read += chunk

    def _wait(self, end: int, event: int, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(end, event)
            if not selector.select(timeout_s):
                raise LostError(f"{self.url} did not answer for {timeout_s:g} s")

    def _lost(self) -> LostError:
        """The reason why ssh has ended, in its own words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ssh.wait(5)
        self._errors.seek(0)
        lines = self._errors.read()[-20_000:].decode("utf-8", "replace").strip().splitlines()
        said = lines[-1].strip()[:300] if lines else f"ssh ended with code {self._ssh.poll()}"
        code = self._ssh.poll()
        if code == 255 or code is None:
            passing = any(word in line for line in lines[-3:] for word in _PASSING)
            return LostError(f"{self.url}: {said}", final=not passing and bool(lines), code="SSH_REFUSED")
        if code in (126, 127) or "aisp needs Python" in said:
            return LostError(f"{self.url}: {said}", final=True, code="HOST_PYTHON")
        return LostError(f"{self.url}: {said}", final=bool(lines), code="HOST_FAILED")


HINTS = {
    "HOST_FULL": "Free space there; what was sent lies in ~/.cache/aisp-host.",
    "HOST_LACKS": "Install it there, or name another Python with --remote-python; aisp doctor --executor shows all.",
    "HOST_PYTHON": "Name a Python of 3.11 or newer there with --remote-python, such as aisp/bin/python.",
    "SSH_REFUSED": "`ssh` itself must connect without a question: try it by hand with -o BatchMode=yes.",
    "SSH_UNREACHABLE": "Try `ssh` by hand; the job was not sent.",
}


class Ssh:
    """One host, named as ssh://[user@]host[:port]; host may be a name of the user's configuration."""

    tick_s: ClassVar[float] = 0.2
    settle_s: ClassVar[float] = 0.5
    grace_s: ClassVar[float] = 0.0
    linger_s: ClassVar[float] = 120.0  # between two jobs of somebody who thinks

    def __init__(self, url: str) -> None:
        self.url = self.title = url
        self._connection: Connection | None = None
        self._facts: dict[str, Any] = {}
        self._failures, self._next, self._said, self._silent_since = 0, 0.0, "", math.inf
        self._python = ""
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._logs: dict[str, int] = {}

    def submission_of(self, row: Any) -> str:
        """Each job is submitted by itself."""
        return str(row["id"])

    def submit(self, rows: Sequence[Any]) -> dict[str, Submission]:
        """Send files that are missing there, and then the job. Raises AispError if it is refused or cannot be sent."""
        (row,) = rows
        sent = Path(row["run_dir"]) / _SENT
        try:
            connection = self._connected(row)
            self._submit(connection, row, sent)
        except LostError as error:
            self._drop(error)
            never = not sent.exists()
            if never and error.final:
                raise Unavailable(error.code, self._bare(error), HINTS.get(error.code)) from error
            patience = SILENT_S if self._facts else UNREACHABLE_S
            if never and time.monotonic() - self._silent_since > patience:
                raise Unavailable("SSH_UNREACHABLE", self._bare(error), HINTS["SSH_UNREACHABLE"]) from error
            return {row["id"]: Submission(None, self._said)}
        except Unavailable as error:
            raise Unavailable(error.code, self._bare(error), error.hint) from error
        return {row["id"]: Submission(self.url, f"queued on {self._facts['node']}")}

    def poll(self, rows: list[Any]) -> dict[str, ExecutorState]:
        """States there; files of jobs that run or have ended are written to their run folders here."""
        if not rows:
            return {}
        states = {}
        try:
            connection = self._connected(rows[0])
            asked = {row["id"]: self._logs.get(row["id"], -1) for row in rows}
            answer = connection.call("poll", jobs=asked)
            ahead = answer["clock"] - time.time()
            for row in rows:
                seen = answer["jobs"][row["id"]]
                states[row["id"]] = self._seen(connection, row, seen, ahead)
        except LostError as error:
            self._drop(error)
        silent = ExecutorState("silent", message=self._said)
        return {row["id"]: states.get(row["id"], silent) for row in rows}

    def cancel(self, row: Any) -> bool:
        """Ask for the end of a job there."""
        try:
            self._connected(row).call("cancel", id=row["id"])
        except LostError as error:
            self._drop(error)
            return False
        except AispError:
            return False
        return True

    def discard(self, handle: str) -> None:
        """Nothing: a job cannot be there twice."""

    def tail(self, row: Any, limit: int) -> str:
        """The end of the log, as of the last look."""
        return log.tail(Path(row["run_dir"]), limit)

    def forget(self, row: Any) -> None:
        """Remove the job there; if that fails, its host does so after some days."""
        self._logs.pop(row["id"], None)
        with contextlib.suppress(LostError, AispError):
            if self._connection:
                self._connection.call("forget", id=row["id"])

    def check(self, python: str) -> dict[str, Any]:
        """What this host is and has; for `aisp doctor`. Raises LostError, Unavailable."""
        names = [*sending.requirements(), *sending.requirements("bench")]
        connection = Connection(self.url, python)
        try:
            connection.ready()
            began = time.monotonic()
            facts = connection.call("facts", packages=names)
            return {**facts, "ahead_s": facts["clock"] - time.time(), "answer_s": time.monotonic() - began}
        finally:
            connection.close()

    def _bare(self, error: Exception) -> str:
        """The message without the host's name, for a sentence that begins with it."""
        return str(error).removeprefix(f"{self.url}: ").removeprefix(f"{self.url} ")

    def _connected(self, row: Any) -> Connection:
        """The connection, made anew if there is none; not more often than AGAIN_S says."""
        python = json.loads(row["placement"])["python"]
        if self._connection and self._python == python:
            return self._connection
        if self._connection:
            self._connection.close()
            self._connection = None
        if time.monotonic() < self._next:
            raise LostError(self._said)
        connection = Connection(self.url, python)
        try:
            parcel = parcels.Parcel(parcels.package(), self._hashes)
            _ = parcel.digest  # read while ssh connects
            connection.ready()
            needed = sending.requirements()
            self._facts = connection.call("facts", packages=needed)
            lacking = [name for name in needed if self._facts["packages"][name] is None]
            if lacking:
                command = f"{self._facts['executable']} -m pip install {' '.join(lacking)}"
                raise LostError(f"{self.url} lacks {', '.join(lacking)}: {command}", final=True, code="HOST_LACKS")
            folder = _send(connection, parcel)
            connection.call("start", folder=os.path.dirname(folder), timeout_s=START_S)
        except BaseException:
            connection.close()
            raise
        self._connection, self._python = connection, python
        self._failures, self._said, self._silent_since = 0, "", math.inf
        return connection

    def _drop(self, error: LostError) -> None:
        """Give the connection up, and wait before the next attempt."""
        self._silent_since = min(self._silent_since, time.monotonic())
        if self._connection:
            self._connection.close()
            self._connection = None
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN_S[min(self._failures, len(AGAIN_S) - 1)]
            self._failures += 1
            self._said = str(error)

    def _submit(self, connection: Connection, row: Any, sent: Path) -> None:
        with sending.folders(row, self._hashes) as parcels_by_path:
            names = {path: _send(connection, parcel) for path, parcel in parcels_by_path.items()}
        handover.write(sent.parent, sent.name, names)  # before the job: from now on it may be there
        connection.call("submit", job=sending.job(row, names, self.url))

    def _seen(self, connection: Connection, row: Any, seen: dict[str, Any] | None, ahead: float) -> ExecutorState:
        """The state of one job, whose files are brought here. ahead: of its clock to ours, seconds."""
        node = self._facts["node"]
        if seen is None:
            return ExecutorState("unknown", message=f"{self.title} does not know it")
        folder, state = Path(row["run_dir"]), JobState(seen["state"])
        if "log" in seen:
            (folder / log.NAME).write_text(seen["log"], "utf-8")
            self._logs[row["id"]] = seen["log_size"]
        if state is JobState.QUEUED:
            ahead_of_it = seen["position"]
            message = f"waits on {node} for {_jobs(ahead_of_it)}" if ahead_of_it else f"starts on {node}"
            return ExecutorState("waiting", state, message, self.url, node)
        handover.take_claim(folder, self.url)
        if seen["progress"]:
            handover.write(folder, handover.PROGRESS, json.loads(seen["progress"]))
        if not state.terminal:
            return ExecutorState("running", state, f"runs on {node}", self.url, node)
        self._fetch(connection, row)
        began, ended = (None if seen[name] is None else seen[name] - ahead for name in ("started_at", "ended_at"))
        left = {"state": state, "exit_code": seen["exit_code"], "reason": seen["reason"], "node": node}
        handover.write(folder, handover.EXIT, {**left, "started_at": began or time.time(), "ended_at": ended})
        said = (seen["reason"] or "ended").partition(": ")[2].removeprefix(f"{row['tool']} ").rstrip(".")
        return ExecutorState("ended", state.upper(), f"{said} on {node}", self.url, node, seen["exit_code"])

    def _fetch(self, connection: Connection, row: Any) -> None:
        """Write what a job has left there to its run folder, with paths as they are here."""
        folder = Path(row["run_dir"])
        answer = connection.call("fetch", id=row["id"])
        there = handover.read(folder, _SENT) or {}
        names = {**{path: here for here, path in there.items()}, answer["folder"]: str(folder)}
        for name, size in answer["files"]:
            target = folder / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise LostError(f"{self.url} sent a file named {name[:80]!r}", final=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                while size:
                    chunk = connection.following(min(size, receiving.CHUNK))
                    size -= len(chunk)
                    file.write(chunk)
        host = f"{self._facts['node']} ({self.url})"
        sending.take(folder, answer["rows"], answer["envelope"] and json.loads(answer["envelope"]), names, host)


_SENT = "sent.json"  # in the run folder once a job may be on its host: where its folders are there


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _send(connection: Connection, parcel: parcels.Parcel) -> str:
    """Bring a folder there; returns its path. Nothing is sent that is there already."""
    path = connection.call("tree", digest=parcel.digest)["path"]
    if path:
        return str(path)
    digests = sorted({digest for _, _, digest in parcel.files})
    for group in _groups(parcel.sizes(connection.call("lacking", digests=digests)["lacking"])):
        files = [(digest, size) for digest, size, _ in group]
        contents = receiving.contents((str(path), size) for _, size, path in group)  # the other end compares the hashes
        changed = connection.call("put", contents, files=files)["changed"]
        if changed:
            raise LostError(f"files of {parcel.root} changed while they were sent")
    built = connection.call("build", digest=parcel.digest, name=parcel.root.name, files=parcel.files)
    return str(built["path"])


def _groups(files: Sequence[tuple[str, int, Path]]) -> Iterator[list[tuple[str, int, Path]]]:
    """Files for one request each, so that a full disk is noticed soon."""
    group, size = list[tuple[str, int, Path]](), 0
    for file in files:
        group.append(file)
        size += file[1]
        if size > 4 * receiving.CHUNK:
            yield group
            group, size = [], 0
    if group:
        yield group
