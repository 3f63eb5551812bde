"""Jobs through Slurm's own commands. Their text is parsed; every command has a time limit and may fail at any time.

A submission is known by its name, which contains our job id. If the outcome of an attempt is unknown (sbatch hung, or
could not reach the controller), Slurm is queried for that name, and nothing is submitted until it has answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors import handover, slurm_script
from aisp_mcp.jobs.executors.base import Seen
from aisp_mcp.jobs.executors.slurm_text import (
    ACCOUNT_FIELDS,
    ENDED,
    QUEUE_FORMAT,
    RUNNING,
    Listed,
    of_fields,
    read_accounting,
    read_fields,
    read_queue,
    waits_because,
)
from aisp_mcp.system.command import ProgramAnswer, ask

QUERY_S, SUBMIT_S = 10.0, 15.0
INSTALL = "Slurm's commands must be on PATH (Debian and Ubuntu: apt-get install slurm-client)."
# sbatch's message if the controller did not answer; the job may have been accepted all the same.
_UNCERTAIN = (
    *("Unable to contact", "Socket timed out", "Zero Bytes", "Connection", "temporarily", "Communication"),
    *("Transport endpoint", "Unexpected message", "Unable to resolve", "try again", "Transient", "Failed to load"),
)
_HERE_ONLY = {"TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"}


class Slurm:
    """One cluster, as the environment of this process names it."""

    def __init__(self) -> None:
        self._accounting = True
        self._completed: Path | None = None
        self._configured = False

    def submit(self, row: Any, tasks: Sequence[int] = ()) -> str | None:
        """Pass the job's script to sbatch, unless an earlier attempt succeeded; None: the outcome is unknown.

        tasks: indices, when the row is one of an array's; the id is then that of the array. Raises UsageError
        SLURM_REFUSED and Unavailable NO_SLURM.
        """
        if row["spawns"]:
            known, certain = self._find(row)
            if known or not certain:
                return known and known.partition("_")[0]
        array = slurm_script.array_of(row)
        folder = Path(array["folder"] if array else row["run_dir"])
        request = json.loads(row["placement"])
        text = slurm_script.script(array.get("id") or row["id"], str(folder), row["python"], request, tasks)
        (folder / slurm_script.NAME).write_text(text, "utf-8")
        argv = ["sbatch", "--parsable", str(folder / slurm_script.NAME)]
        return _submitted(ask(argv, SUBMIT_S, _environment(row)))

    def poll(self, rows: list[Any]) -> dict[str, Seen]:
        """States from one squeue; for jobs it has forgotten, from sacct, scontrol and jobcomp, in that order."""
        listed = self._list()
        if listed is None:
            return {}
        by_task: dict[tuple[str, str], list[Listed]] = {}
        for job in listed:
            by_task.setdefault((job.name, _task(job.handle)), []).append(job)
        states, forgotten = {}, []
        for row in rows:
            jobs = by_task.get((slurm_script.name_of(row), _task(slurm_script.handle_of(row, ""))))
            if jobs:
                states[row["id"]] = self._seen(jobs, row)
            elif row["handle"]:
                forgotten.append(row)
        return states | self._remembered(forgotten)

    def cancel(self, row: Any) -> bool:
        """Cancel by id, or by name while the id is unknown."""
        arguments = [row["handle"]] if row["handle"] else ["--name", slurm_script.name_of(row), "--user", _user()]
        return self.cancel_handle(*arguments)

    def cancel_handle(self, *arguments: str) -> bool:
        """Run scancel. A job that has ended already counts as cancelled."""
        answer = ask(["scancel", *arguments], QUERY_S)
        return answer.code == 0 or "Invalid job id" in answer.err

    def tail(self, row: Any, limit: int) -> str:
        """The end of the job's log; before it has one, that of the batch script's own output."""
        folder = Path(row["run_dir"])
        text = log.tail(folder, limit)
        if not text:
            with contextlib.suppress(OSError):
                text = slurm_script.output_of(row).read_bytes()[-limit:].decode("utf-8", "replace")
        return text

    def _find(self, row: Any) -> tuple[str | None, bool]:
        """(id of an earlier submission, whether Slurm has answered)."""
        claimed = handover.claimed_by(Path(row["run_dir"]))
        if claimed:
            return claimed, True
        listed = self._list()
        if listed is None:
            return None, False
        name = slurm_script.name_of(row)
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(row["created_at"] - 60))
        ended = self._account(["--name", name, "--starttime", since])
        if ended is None:
            return None, False
        ids = [job.handle for job in [*listed, *ended] if job.name == name]
        return (min(ids, key=_order) if ids else None), True

    def _list(self) -> list[Listed] | None:
        """All jobs of this user that the controller remembers; None if it does not answer."""
        answer = ask(["squeue", "-h", "-r", "-t", "all", "-u", _user(), "-o", QUEUE_FORMAT], QUERY_S)
        return read_queue(answer.out) if answer.code == 0 else None

    def _account(self, arguments: list[str]) -> list[Listed] | None:
        """Jobs from accounting; empty if there is no accounting, None if it does not answer."""
        if not self._accounting:
            return []
        answer = ask(["sacct", "-n", "-P", "-X", "-o", ACCOUNT_FIELDS, *arguments], QUERY_S)
        if answer.code == 0:
            return read_accounting(answer.out)
        if "disabled" in answer.err or (answer.code is None and not answer.timed_out):
            self._accounting = False
            return []
        return None

    def _seen(self, jobs: list[Listed], row: Any) -> Seen:
        """The running submission, or else the first; the others are duplicates."""
        chosen = handover.claimed_by(Path(row["run_dir"])) or min((job.handle for job in jobs), key=_order)
        job = next((job for job in jobs if job.handle == chosen), jobs[0])
        others = tuple(listed.handle for listed in jobs if listed.handle != job.handle and listed.state not in ENDED)
        if job.state in ENDED and job.code is None:
            job = self._show(job.handle) or job
        return _as_seen(job, others)

    def _remembered(self, rows: list[Any]) -> dict[str, Seen]:
        if not rows:
            return {}
        counted = self._account(["-j", ",".join(row["handle"] for row in rows)])
        if counted is None:
            return {}
        known = {job.handle: job for job in counted}
        states = {}
        for row in rows:
            job = known.get(row["handle"]) or self._show(row["handle"]) or self._completion(row["handle"])
            states[row["id"]] = _as_seen(job) if job else Seen("unknown", handle=row["handle"])
        return states

    def _show(self, handle: str) -> Listed | None:
        answer = ask(["scontrol", "show", "job", "-o", handle], QUERY_S)
        return of_fields(read_fields(answer.out)) if answer.code == 0 else None

    def _completion(self, handle: str) -> Listed | None:
        """The job's line in the file of jobcomp/filetxt, if that is configured and readable."""
        if not self._configured:
            answer = ask(["scontrol", "show", "config"], QUERY_S)
            config = dict(line.partition("=")[::2] for line in answer.out.splitlines())
            config = {key.strip(): value.strip() for key, value in config.items()}
            self._configured = answer.code == 0
            if config.get("JobCompType") == "jobcomp/filetxt":
                self._completed = Path(config["JobCompLoc"])
        if self._completed is None:
            return None
        with contextlib.suppress(OSError), open(self._completed, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.startswith(f"JobId={handle} ")]
            return of_fields(read_fields(lines[-1])) if lines else None
        return None


def _submitted(answer: ProgramAnswer) -> str | None:
    """The id that sbatch printed; None if the job may or may not have been accepted."""
    if answer.code == 0:
        handle = answer.out.strip().splitlines()[-1].partition(";")[0] if answer.out.strip() else ""
        return handle if handle.isdigit() else None
    if answer.code is None and not answer.timed_out:
        raise Unavailable("NO_SLURM", f"sbatch cannot be started: {answer.err[:200]}.", INSTALL)
    lines = [line for line in answer.err.splitlines() if "error:" in line]
    if lines and not any(word in answer.err for word in _UNCERTAIN):
        raise UsageError("SLURM_REFUSED", lines[-1].partition("error:")[2].strip()[:300], "Request something else.")
    return None


def _as_seen(job: Listed, duplicates: tuple[str, ...] = ()) -> Seen:
    phase = "ended" if job.state in ENDED else "running" if job.state in RUNNING else "waiting"
    if phase == "waiting":
        sentence = f"Slurm job {job.handle} waits: {waits_because(job.reason, job.start)}"
    else:
        sentence = f"Slurm job {job.handle} {job.reason if job.reason.startswith('CANCELLED') else job.state}"
        sentence += f" on {job.nodes}" if job.nodes else ""
    return Seen(phase, job.state, sentence, job.handle, job.nodes, job.code, duplicates)  # type: ignore[arg-type]


def _environment(row: Any) -> dict[str, str]:
    """Variables of a job: those that it remembers, and those that describe the cluster to sbatch.

    sbatch passes its whole environment to the job, so it must contain nothing else.
    """
    own = {name: value for name, value in json.loads(row["env"] or "{}").items() if name not in _HERE_ONLY}
    site = {name: value for name, value in os.environ.items() if name.startswith("SBATCH_") or name == "SLURM_CONF"}
    return {"PATH": os.environ.get("PATH", os.defpath), **site, **own}


def _user() -> str:
    return str(os.getuid())


def _task(handle: str) -> str:
    """Index of a task in its array; empty for a single job."""
    return handle.partition("_")[2]


def _order(handle: str) -> tuple[int, str]:
    digits = handle.partition("_")[0].partition("+")[0]
    return (int(digits) if digits.isdigit() else 1 << 62, handle)
