"""Records of jobs without an answer: the same envelope as any other answer, made without pydantic."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.store.records.job_state import JobState

HINTS = {
    "TIMEOUT": "Use a larger timeout_s, or reduce the work; the log shows how far it got.",
    "STOPPED": "At isolation level L1, a program can stop the measuring process; do not trust the one that ran last.",
    "CRASHED": "The log contains its last output.",
    "OUT_OF_MEMORY": "Use a smaller preset or fewer targets, or raise the memory limit of this machine or container.",
    "NO_RESULT": "The log contains its last output; code that calls exit() inside a tool has this effect.",
    "NODE_FAIL": "A node failed under it; call the tool again. `sinfo -R` shows which nodes are down, and why.",
    "PREEMPTED": "Slurm gave its nodes to a job of higher priority; call the tool again, or use another partition.",
    "SLURM_REFUSED": "Change nodes, GPUs, partition, account or time; `sinfo` lists the choices.",
    "NO_SLURM": "Slurm's commands must be on PATH, or AISP_EXECUTOR=local.",
    "CANCELLED": "Call the tool again to start over.",
    "LOST": "Its supervisor vanished (killed, or the machine restarted); call the tool again.",
    "NOT_STARTED": "The interpreter or folder it was submitted from is gone; submit it again.",
    "STORE_FULL": "Free space on the disk that holds AISP_HOME, or remove old jobs with aisp_job_clean.",
}


def failure(tool: str, job_id: str, code: str, message: str, began: float | None, hint: str | None = None) -> str:
    """An error envelope as JSON. began: UTC seconds at which the job started, for its duration. hint: other than the
    usual one of the code.
    """
    now = time.time()
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    step = {"tool": "aisp_job_status", "args": {"job_id": job_id}, "why": "state and the end of the log"}
    return json.dumps(
        {
            "tool": tool,
            "status": "error",
            "error": {"code": code, "message": message, "hint": HINTS.get(code, hint), "next_steps": [step]},
            "meta": {"duration_ms": round((now - (began or now)) * 1000, 3), "version": __version__, "at": at},
        }
    )


def answer_of(row: Any) -> str | None:
    """The answer the worker left: in the store or, if that failed, in its folder. None if there is none."""
    if row["envelope"]:
        return str(row["envelope"])
    try:
        text = (Path(row["run_dir"]) / "envelope.json").read_text("utf-8")
        return text if isinstance(json.loads(text), dict) else None
    except (OSError, ValueError):
        return None


def state_of(answer: str) -> JobState:
    """Succeeded or failed, as the answer itself says."""
    return JobState.SUCCEEDED if json.loads(answer).get("status") == "ok" else JobState.FAILED


def sentence(answer: str) -> str | None:
    """The error's code and message as the job's reason; None for a success."""
    error = json.loads(answer).get("error")
    return f"{error['code']}: {error['message']}"[:500] if error else None
