"""Slurm's text output as records. Formats are requested field by field (`-o`, `-P`): JSON differs by version."""

from __future__ import annotations

import re
from typing import NamedTuple

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
