"""Jobs through Slurm's own commands. Their text is parsed; every command has a time limit and may fail at any time.

A submission is known by its name, which contains our job id. If the outcome of an attempt is unknown (sbatch hung, or
could not reach the controller), Slurm is queried for that name, and nothing is submitted until it has answered.

In order: the executor, the batch script, the check of a request against the partitions' limits, and the parsing of
Slurm's output. Formats are requested field by field (`-o`, `-P`), because JSON differs by version.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.base import ExecutorState, Submission
from aisp_mcp.jobs.executors.placement import SlurmPlacement, read_minutes
from aisp_mcp.process.python import module
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

    title = "Slurm"
    tick_s: ClassVar[float] = 1.0
    settle_s: ClassVar[float] = 10.0  # search for a submission of unknown outcome this long before the next attempt
    grace_s: ClassVar[float] = 20.0  # through a network file system
    linger_s: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self._accounting = True
        self._completed: Path | None = None
        self._configured = False

    def submission_of(self, row: Any) -> str:
        """The name in Slurm: all tasks of an array share it."""
        return name_of(row)

    def submit(self, rows: Sequence[Any]) -> dict[str, Submission]:
        """Pass a job's script, or that of an array, to sbatch, unless an earlier attempt succeeded.

        Raises UsageError SLURM_REFUSED and Unavailable NO_SLURM.
        """
        submission = self._submit(rows[0], [array["index"] for array in map(array_of, rows) if array])
        handles = {row["id"]: submission and handle_of(row, submission) for row in rows}
        return {
            job_id: Submission(handle, f"Slurm job {handle}" if handle else "Slurm has not confirmed it yet")
            for job_id, handle in handles.items()
        }

    def _submit(self, row: Any, tasks: Sequence[int]) -> str | None:
        """Slurm's id of a submission; None: the outcome is unknown. tasks: indices in an array, whose id it then is."""
        if row["spawns"]:
            known, certain = self._find(row)
            if known or not certain:
                return known and known.partition("_")[0]
        array = array_of(row)
        folder = Path(array["folder"] if array else row["run_dir"])
        request = json.loads(row["placement"])
        text = script(array.get("id") or row["id"], str(folder), row["python"], request, tasks)
        (folder / SCRIPT_NAME).write_text(text, "utf-8")
        argv = ["sbatch", "--parsable", str(folder / SCRIPT_NAME)]
        return _submitted(ask(argv, SUBMIT_S, _environment(row)))

    def poll(self, rows: list[Any]) -> dict[str, ExecutorState]:
        """States from one squeue; for jobs it has forgotten, from sacct, scontrol and jobcomp, in that order."""
        listed = self._list()
        if listed is None:
            return {}
        by_task: dict[tuple[str, str], list[Listed]] = {}
        for job in listed:
            by_task.setdefault((job.name, _task(job.handle)), []).append(job)
        states, forgotten = {}, []
        for row in rows:
            jobs = by_task.get((name_of(row), _task(handle_of(row, ""))))
            if jobs:
                states[row["id"]] = self._seen(jobs, row)
            elif row["handle"]:
                forgotten.append(row)
        return states | self._remembered(forgotten)

    def cancel(self, row: Any) -> bool:
        """Cancel by id, or by name while the id is unknown."""
        arguments = [row["handle"]] if row["handle"] else ["--name", name_of(row), "--user", _user()]
        return self._scancel(*arguments)

    def discard(self, handle: str) -> None:
        """Cancel a second submission by its id."""
        self._scancel(handle)

    def forget(self, row: Any) -> None:
        """Nothing: its files are those of the run folder."""

    def _scancel(self, *arguments: str) -> bool:
        """Run scancel. A job that has ended already counts as cancelled."""
        answer = ask(["scancel", *arguments], QUERY_S)
        return answer.code == 0 or "Invalid job id" in answer.err

    def tail(self, row: Any, limit: int) -> str:
        """The end of the job's log; before it has one, that of the batch script's own output."""
        folder = Path(row["run_dir"])
        text = log.tail(folder, limit)
        if not text:
            with contextlib.suppress(OSError):
                text = output_of(row).read_bytes()[-limit:].decode("utf-8", "replace")
        return text

    def _find(self, row: Any) -> tuple[str | None, bool]:
        """(id of an earlier submission, whether Slurm has answered)."""
        claimed = handover.claimed_by(Path(row["run_dir"]))
        if claimed:
            return claimed, True
        listed = self._list()
        if listed is None:
            return None, False
        name = name_of(row)
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

    def _seen(self, jobs: list[Listed], row: Any) -> ExecutorState:
        """The running submission, or else the first; the others are duplicates."""
        chosen = handover.claimed_by(Path(row["run_dir"])) or min((job.handle for job in jobs), key=_order)
        job = next((job for job in jobs if job.handle == chosen), jobs[0])
        others = tuple(listed.handle for listed in jobs if listed.handle != job.handle and listed.state not in ENDED)
        if job.state in ENDED and job.code is None:
            job = self._show(job.handle) or job
        return _as_seen(job, others)

    def _remembered(self, rows: list[Any]) -> dict[str, ExecutorState]:
        if not rows:
            return {}
        counted = self._account(["-j", ",".join(row["handle"] for row in rows)])
        if counted is None:
            return {}
        known = {job.handle: job for job in counted}
        states = {}
        for row in rows:
            job = known.get(row["handle"]) or self._show(row["handle"]) or self._completion(row["handle"])
            states[row["id"]] = _as_seen(job) if job else ExecutorState("unknown", handle=row["handle"])
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


def _as_seen(job: Listed, duplicates: tuple[str, ...] = ()) -> ExecutorState:
    phase = "ended" if job.state in ENDED else "running" if job.state in RUNNING else "waiting"
    if phase == "waiting":
        sentence = f"Slurm job {job.handle} waits: {waits_because(job.reason, job.start)}"
    else:
        sentence = f"Slurm job {job.handle} {job.reason if job.reason.startswith('CANCELLED') else job.state}"
        sentence += f" on {job.nodes}" if job.nodes else ""
    return ExecutorState(phase, job.state, sentence, job.handle, job.nodes, job.code, duplicates)  # type: ignore[arg-type]


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


SCRIPT_NAME, OUTPUT = "job.sbatch", "slurm.out"
PREFIX = "aisp-"


def job_name(job_id: str) -> str:
    """Name of a job in Slurm: our id, which is unique."""
    return f"{PREFIX}{job_id}"


def slurm_time(minutes: int) -> str:
    """Minutes as days-hours:minutes:seconds."""
    days, rest = divmod(minutes, 1440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def name_of(row: Any) -> str:
    """Name in Slurm of the submission that a row belongs to: all tasks of an array share it."""
    return job_name(array_of(row).get("id") or row["id"])


def array_of(row: Any) -> dict[str, Any]:
    """Array of a row (id, index, folder and digests of its targets); empty for a single job."""
    return json.loads(row["placement"]).get("array") or {}


def handle_of(row: Any, submission: str) -> str:
    """Slurm's id of a row's task within a submission."""
    array = array_of(row)
    return f"{submission}_{array['index']}" if array else submission


def output_of(row: Any) -> Path:
    """File with the batch script's own output."""
    array = array_of(row)
    return Path(array["folder"]) / f"{OUTPUT}.{array['index']}" if array else Path(row["run_dir"]) / OUTPUT


def script(job_id: str, folder: str, python: str, request: dict[str, Any], tasks: Sequence[int] = ()) -> str:
    """The text for sbatch. request: a Placement as a dict; tasks: indices of an array; folder: then of all tasks.

    `singleton` keeps a second submission under this name from starting while the first one lives. Tasks of an array
    share their name; a second submission of one finds the first one's claim.
    """
    output = str(Path(folder) / OUTPUT).replace("%", "%%") + (".%a" if tasks else "")
    options = [
        f"job-name={job_name(job_id)}",
        f"comment=aisp:{job_id}",
        f"nodes={request['nodes']}",
        "ntasks-per-node=1",
        f"time={slurm_time(request['minutes'])}",
        f"output={json.dumps(output, ensure_ascii=False)}",
        "open-mode=append",
        f"array={','.join(map(str, tasks))}" if tasks else "dependency=singleton",
    ]
    options += [f"gpus-per-node={request['gpus']}"] * bool(request["gpus"])
    options += [f"{name}={request[name]}" for name in ("partition", "account") if request[name]]
    options += ["exclusive"] * bool(request["exclusive"])
    command = shlex.join(module("aisp_mcp.jobs.node", folder, python=python))
    return "\n".join(["#!/bin/bash", *(f"#SBATCH --{option}" for option in options), "", f"exec {command}", ""])


LIMITS_QUERY_S = 5.0
DEFAULT_ARRAY_SIZE = 1001  # indices are below it


def check_limits(request: SlurmPlacement) -> None:
    """Refuse requests that no named partition can run. If the controller does not answer, nothing is checked: the job
    will wait.

    Raises UsageError BEYOND_PARTITION and Unavailable NO_SLURM.
    """
    answer = ask(["scontrol", "show", "partition", "-o"], LIMITS_QUERY_S)
    if answer.code is None and not answer.timed_out:
        raise Unavailable("NO_SLURM", f"scontrol cannot be started: {answer.err[:200]}.", INSTALL)
    known = {fields["PartitionName"]: fields for fields in map(read_fields, answer.out.splitlines()) if fields}
    if answer.code != 0 or not known:
        return
    default = [name for name, fields in known.items() if fields.get("Default") == "YES"]
    names = request.partition.split(",") if request.partition else default
    problems = [_problem(name, known, request) for name in names] or ["there is no default partition"]
    if all(problems):
        raise UsageError(
            "BEYOND_PARTITION",
            f"This cannot run: {'; '.join(map(str, problems))}.",
            f"Partitions: {', '.join(sorted(known))}. `sinfo` shows their limits.",
        )


def rehearse(request: dict[str, Any], folder: Path) -> None:
    """Ask Slurm whether it would take such a job, without submitting it. folder: for the script, removed afterwards.

    Raises UsageError SLURM_REFUSED, and Unavailable NO_SLURM if Slurm cannot be asked.
    """
    path = folder / f"rehearsal-{secrets.token_hex(4)}.sbatch"
    path.write_text(script("rehearsal", str(folder), sys.executable, request), "utf-8")
    try:
        answer = ask(["sbatch", "--test-only", str(path)], SUBMIT_S)
    finally:
        path.unlink()
    if answer.code == 0:
        return
    said = (answer.err.strip().splitlines() or ["no reason given"])[-1].removeprefix("sbatch: ")
    if answer.code is None or any(word in answer.err for word in _UNCERTAIN):
        raise Unavailable("NO_SLURM", f"Slurm takes no jobs now: {said[:200]}. Nothing was submitted.", INSTALL)
    refusal = said.partition("error:")[2].strip() or said
    raise UsageError("SLURM_REFUSED", f"{refusal[:300]}. Nothing was submitted.", "Request something else.")


def max_array_size() -> int:
    """Number of tasks an array may have by the controller's configuration; Slurm's default if it is unknown."""
    match = re.search(
        r"^MaxArraySize\s*=\s*(\d+)", ask(["scontrol", "show", "config"], LIMITS_QUERY_S).out, re.MULTILINE
    )
    return max(int(match[1]), 1) if match else DEFAULT_ARRAY_SIZE


def _problem(name: str, partitions: Mapping[str, Mapping[str, str]], request: SlurmPlacement) -> str | None:
    """The first reason why a partition can never run this, as a clause."""
    if name not in partitions:
        return f"no partition is named {name}"
    return next(_problems(name, partitions[name], request), None)


def _problems(name: str, fields: Mapping[str, str], request: SlurmPlacement) -> Iterator[str]:
    if fields.get("State", "UP") != "UP":
        yield f"partition {name} is {fields['State']}"
    longest = fields.get("MaxTime", "UNLIMITED")
    if longest != "UNLIMITED" and request.minutes > read_minutes(longest):
        yield f"{request.minutes} min is above the limit of partition {name}, {longest}"
    for key, verb in (("MaxNodes", "allows"), ("TotalNodes", "has")):
        count = fields.get(key, "")
        if count.isdigit() and request.nodes > int(count):
            yield f"partition {name} {verb} {count} nodes, not {request.nodes}"
    allowed = fields.get("AllowAccounts", "ALL")
    if allowed != "ALL" and request.account and request.account not in allowed.split(","):
        yield f"partition {name} does not take account {request.account}"
    if request.gpus:
        answer = ask(["sinfo", "-h", "-p", name, "-o", "%G"], LIMITS_QUERY_S)
        most = max(map(gpus_of, answer.out.splitlines()), default=0)
        if answer.code == 0 and request.gpus > most:
            yield f"nodes of partition {name} have at most {most} GPUs, not {request.gpus} ({answer.out.strip()[:100]})"


def gpus_of(gres: str) -> int:
    """Number of GPUs in a GRES such as gpu:h200:2(S:0-1),gpu:a100:4,nvme:1."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = [part.split(":") for part in plain.split(",") if part.split(":")[0] == "gpu"]
    return sum(int(parts[-1]) if parts[-1].isdigit() else 1 for parts in counts)


QUEUE_FORMAT = "%i|%T|%r|%S|%N|%j"
ACCOUNT_FIELDS = "JobID,State,ExitCode,NodeList,JobName"

RUNNING = {"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
ENDED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"),
}

_REASONS = {
    "Resources": "all suitable nodes are busy",
    "Priority": "jobs of higher priority come first",
    "Dependency": "an earlier submission under the same name has not ended",
    "BeginTime": "its earliest start time has not been reached",
    "JobHeldUser": "it is held; scontrol release starts it",
    "JobHeldAdmin": "an administrator holds it",
    "Licenses": "a licence is not free",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionTimeLimit": "its time limit is above the partition's",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node satisfies its constraints",
    "AssocGrpGRES": "the account's GPU limit is reached",
    "QOSMaxJobsPerUserLimit": "the limit of running jobs per user is reached",
    "QOSMaxGRESPerUser": "the limit of GPUs per user is reached",
    "AssocMaxJobsLimit": "the account's limit of running jobs is reached",
    "MaxMemPerLimit": "it asks for more memory than allowed",
    "None": "the scheduler has not considered it yet",
}
_NO_TIME = {"", "N/A", "Unknown", "None", "(null)"}


class Listed(NamedTuple):
    """One job of squeue or sacct. code: exit code, None if the source has none."""

    handle: str
    state: str
    reason: str
    start: str
    nodes: str
    name: str
    code: int | None = None


def read_queue(text: str) -> list[Listed]:
    """Lines of `squeue -h -o QUEUE_FORMAT`. The name comes last, because it may contain the separator."""
    rows = [line.split("|", 5) for line in text.splitlines()]
    return [Listed(row[0], row[1].strip(), row[2], row[3], row[4], row[5]) for row in rows if len(row) == 6]


def read_accounting(text: str) -> list[Listed]:
    """Lines of `sacct -n -P -X -o ACCOUNT_FIELDS`. A state may be followed by more words: "CANCELLED by 1000"."""
    rows = [line.split("|", 4) for line in text.splitlines()]
    return [
        Listed(row[0], row[1].split(" ")[0], row[1], "", row[3], row[4], exit_code(row[2]))
        for row in rows
        if len(row) == 5 and row[1]
    ]


def read_fields(text: str) -> dict[str, str]:
    """`Key=value` words of one line of scontrol or of jobcomp/filetxt. The first of a repeated key counts."""
    values: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(\S*)", text):
        values.setdefault(key, value)
    return values


def of_fields(values: dict[str, str]) -> Listed | None:
    """A job from such words; None without an id and a state."""
    handle, state = values.get("JobId"), values.get("JobState")
    if not handle or not state:
        return None
    name, nodes = values.get("JobName") or values.get("Name", ""), values.get("NodeList", "")
    if values.get("ArrayTaskId", "").isdigit():
        handle = f"{values['ArrayJobId']}_{values['ArrayTaskId']}"
    nodes = "" if nodes == "(null)" else nodes
    return Listed(handle, state, values.get("Reason", ""), "", nodes, name, exit_code(values.get("ExitCode", "")))


def exit_code(text: str) -> int | None:
    """Slurm's "code:signal" as one number, negative for a signal."""
    code, _, number = text.partition(":")
    if not code.isdigit():
        return None
    return -int(number) if number.isdigit() and int(number) and not int(code) else int(code)


def waits_because(reason: str, start: str) -> str:
    """A reason for pending in words, with the expected start (in the cluster's local time)."""
    word = reason.strip("()").split(",")[0].split(" ")[0]
    reason_text = _REASONS.get(word, f"Slurm says {reason}" if reason else _REASONS["None"])
    return reason_text if start in _NO_TIME else f"{reason_text}; expected start {start}"
