"""python -m aisp_mcp.jobs.supervisor JOB: claim a job, run its worker, and record how it ends.

One short-lived process per running job, so that a job depends on no other process. It enforces the time-out, collects
the output, kills the whole tree (as a subreaper it inherits every orphan below it, daemons included), records the end
and starts the next job. It imports little: it starts as fast as the interpreter itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from aisp_mcp.errors import AispError, StoreError
from aisp_mcp.jobs import endings
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.log import JobLog
from aisp_mcp.jobs.ready import keep_asked_for
from aisp_mcp.jobs.starting import scratch_of, start_ready
from aisp_mcp.process import tree
from aisp_mcp.process.python import module
from aisp_mcp.store.connection import Database
from aisp_mcp.store.queue import Queue
from aisp_mcp.store.records.job_state import JobState

BEAT_S = 1.0
_STOPPED_BEATS = 3  # consecutive checks that may find a worker stopped, by a debugger for example
_CHUNK = 262_144
_DRAIN_S = 0.2
_DIES_S = 5.0  # wait for a killed worker; a process stuck in a driver may never end
_RETRIES, _RETRY_S = 20, 0.5  # attempts to record the end


Run = Callable[[], NoReturn]


@dataclass
class JobOutcome:
    """Reason for the end of the watch. status: as of waitpid; None while the worker runs."""

    status: int | None = None
    cut: str | None = None  # TIMEOUT, CANCELLED or STOPPED: we ended it


def main(loaded: Run | None = None) -> int:
    """Claim and run one job. loaded: as in supervise(). Returns 0 also if there was nothing to do."""
    os.chdir("/")
    home = Path(os.environ["AISP_HOME"])
    supervise(sys.argv[1], home, int(os.environ.get("AISP_PARALLEL_JOBS") or 4), loaded, keep_asked_for)
    return 0


def supervise(
    job_id: str, home: Path, slots: int, loaded: Run | None = None, leave: Callable[[Path, str], None] | None = None
) -> None:
    """Claim a job of the store in home and run it to its end, in this process; do nothing if it is not its turn.

    loaded: the worker's function, which its fork runs, in a process that has loaded it (standby.py); without it, the
    worker is a new interpreter. leave: starts what is to outlive the job, before anybody can read its answer.
    """
    tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1)
    signals = _catch_signals()
    database = Database(home)
    owner = {"pid": os.getpid(), "pid_start": tree.start_time(os.getpid()), "namespace": tree.namespace()}
    row = Queue(database).claim(job_id, slots, owner)
    database.close()  # SQLite's state must not be open in a fork that opens the same file
    if row is None:
        return
    queue = _run(home, row, signals, loaded, leave)
    start_ready(queue, slots, home)


def _catch_signals() -> int:
    """Let SIGTERM, SIGINT and the end of a child wake the selector; return the descriptor to watch."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return readable


def _run(home: Path, row: Any, signals: int, loaded: Run | None, leave: Callable[[Path, str], None] | None) -> Queue:
    folder = Path(row["run_dir"])
    log = JobLog(folder, int(os.environ.get("AISP_JOB_LOG_BYTES") or 1_000_000))
    kills = tree.oom_kills()
    worker, output = _start_worker(row, loaded)
    queue = Queue(Database(home))
    outcome = _watch(queue, row, worker, output, signals, log)
    stuck = tree.sweep_children()
    log.close()
    os.close(output)
    shutil.rmtree(scratch_of(row), ignore_errors=True)
    if leave:
        leave(home, row["id"])
    _write_ending(queue, row["id"], outcome, tree.oom_kills() > kills, stuck)
    return queue


def _start_worker(row: Any, loaded: Run | None) -> tuple[int, int]:
    """Fork and execute the worker: own session, dies with its supervisor, parameters on standard input."""
    params = os.memfd_create("params")
    os.write(params, row["params"].encode())
    os.lseek(params, 0, os.SEEK_SET)
    output, worker_output = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    options = ("--job", row["id"], "--home", os.environ["AISP_HOME"], "--cwd", row["cwd"])
    argv = module("aisp_mcp.server.worker", row["tool"], *options, python=row["python"])
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            tree.prctl(tree.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:  # we died before the line above
                os._exit(1)
            for source, target in ((params, 0), (worker_output, 1), (worker_output, 2)):
                os.dup2(source, target)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            scratch = scratch_of(row)
            scratch.mkdir(mode=0o700)
            os.chdir(row["cwd"])  # fails now if it is missing; the interpreter starts in an empty folder
            os.chdir(row["run_dir"])
            os.environ["TMPDIR"] = str(scratch)
            if loaded:
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                sys.argv = argv[argv.index("-m") + 1 :]
                loaded()
            os.execv(argv[0], argv)
        except BaseException as error:
            os.write(2, f"cannot start the worker: {error}\n".encode())
            os._exit(127)
    os.close(params)
    os.close(worker_output)
    return pid, output


def _watch(queue: Queue, row: Any, worker: int, output: int, signals: int, log: JobLog) -> JobOutcome:
    """Wait until the worker ends, times out or is cancelled."""
    outcome = JobOutcome()
    deadline = time.monotonic() + row["timeout_s"]
    beat, stood = 0.0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(signals, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= beat:
                beat = now + BEAT_S
                if _beat(queue, row):
                    outcome.cut = "CANCELLED"
                stood = stood + 1 if tree.stopped(worker) else 0
                if stood > _STOPPED_BEATS:
                    outcome.cut = "STOPPED"
            if now >= deadline:
                outcome.cut = "TIMEOUT"
            if outcome.cut or _ended(worker, outcome):
                break
            ready = {key.fd for key, _ in selector.select(max(0.0, min(beat, deadline) - now))}
            if output in ready and not _take(output, log):
                selector.unregister(output)
            if signals in ready and set(os.read(signals, 4096)) & {signal.SIGTERM, signal.SIGINT}:
                outcome.cut = "CANCELLED"
    end = time.monotonic() + _DIES_S
    while outcome.cut and not _ended(worker, outcome) and time.monotonic() < end:
        tree.kill([worker])
        time.sleep(0.001)
    _drain(output, log)
    return outcome


def _beat(queue: Queue, row: Any) -> bool:
    """Write a heartbeat for readers that cannot see our pid; return True if the job is to be cancelled."""
    with contextlib.suppress(OSError):
        path = Path(row["run_dir"]) / "heartbeat"
        path.touch()
    try:
        if row["executor"] == "node":  # the waiting process cannot read this node's store
            _publish(Path(row["run_dir"]), queue.progress(row["id"]))
        return queue.cancel_asked(row["id"])
    except StoreError:  # busy or full: the job itself is not affected
        return False


def _publish(folder: Path, progress: str | None) -> None:
    """Write the progress, JSON, where other machines can read it."""
    if progress:
        with contextlib.suppress(OSError):
            handover.write(folder, handover.PROGRESS, json.loads(progress))


def _ended(worker: int, outcome: JobOutcome) -> bool:
    """Reap the worker if it has ended, and orphans of the tree."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                outcome.status = status
    return outcome.status is not None


def _take(output: int, log: JobLog) -> bool:
    """Move one chunk to the log; False at the end of the stream."""
    try:
        chunk = os.read(output, _CHUNK)
    except BlockingIOError:
        return True
    log.write(chunk)
    return bool(chunk)


def _drain(output: int, log: JobLog) -> None:
    """Log the data already in the pipe; a daemon that goes on writing is cut off after a while."""
    end = time.monotonic() + _DRAIN_S
    with contextlib.suppress(BlockingIOError):
        while time.monotonic() < end and (chunk := os.read(output, _CHUNK)):
            log.write(chunk)


def _write_ending(queue: Queue, job_id: str, outcome: JobOutcome, oom: bool, stuck: list[int]) -> None:
    """Try for a while; if nothing can be written at all, reconcile will find the row later and mark it lost."""
    for attempt in range(_RETRIES):
        try:
            _end(queue, job_id, outcome, oom, stuck)
            return
        except StoreError as error:
            if error.code == "STORE_FULL":
                queue.db.free_reserve()
            if error.code not in ("STORE_FULL", "STORE_BUSY") or attempt == _RETRIES - 1:
                raise
            time.sleep(_RETRY_S if attempt else 0.0)
        except AispError:  # another process has ended it: reconcile considered us dead
            return


def _end(queue: Queue, job_id: str, outcome: JobOutcome, oom: bool, stuck: list[int]) -> None:
    row = queue.row(job_id)
    if row is None:
        return
    code = os.waitstatus_to_exitcode(outcome.status or 0)
    answer = None if outcome.cut else endings.answer_of(row)
    if answer is None and not outcome.cut and code == -signal.SIGKILL and not oom and _given_again(queue, job_id):
        return
    if answer is None:
        state = JobState.CANCELLED if outcome.cut == "CANCELLED" else JobState.FAILED
        name, message = _explain(row, outcome, code, oom)
        answer = endings.failure(row["tool"], job_id, name, message, row["started_at"])
    else:
        state = endings.state_of(answer)
    reason = endings.sentence(answer)
    if stuck:
        reason = f"{reason or 'done'}; {len(stuck)} processes could not be killed: {stuck[:5]}"
    with contextlib.suppress(OSError):
        (Path(row["run_dir"]) / "envelope.json").write_text(answer, "utf-8")
    queue.end(job_id, state, exit_code=code, reason=reason, envelope=answer)


def _given_again(queue: Queue, job_id: str) -> bool:
    """Queue a submission anew whose worker somebody has killed, once."""
    with queue.db.transaction():
        return queue.give_again(job_id)


def _explain(row: Any, outcome: JobOutcome, code: int, oom: bool) -> tuple[str, str]:
    if outcome.cut == "TIMEOUT":
        return "TIMEOUT", f"{row['tool']} took longer than {row['timeout_s']:g} s; the whole process tree was killed."
    if outcome.cut == "STOPPED":
        return (
            "STOPPED",
            f"{row['tool']} was stopped by a signal and did not continue; the whole process tree was killed.",
        )
    if outcome.cut == "CANCELLED":
        return "CANCELLED", f"{row['tool']} was cancelled; the whole process tree was killed."
    if code == -signal.SIGKILL and oom:
        return "OUT_OF_MEMORY", f"The kernel killed {row['tool']} because memory ran out."
    if code < 0:
        return "CRASHED", f"{row['tool']} was ended by signal {-code} ({signal.strsignal(-code)})."
    if code > 0:
        return "CRASHED", f"{row['tool']} exited with code {code} and no answer."
    return "NO_RESULT", f"{row['tool']} ended without an answer."


if __name__ == "__main__":
    sys.exit(main())
