"""A job: one command that outlives its caller."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.envelope import Progress
from aisp_mcp.records import Record
from aisp_mcp.store.records.job_state import JobState, check_transition

# Arguments that name the subject of a job, in order of interest to a reader.
SUBJECTS = (
    *("name", "targets", "target", "from", "path", "url", "baseline", "candidate", "command", "script", "base", "head"),
    *("traces", "profile", "report", "model", "types", "size", "collectives", "dir", "query", "question"),
)
MAX_SUBJECT = 100

__all__ = ["Job", "JobState", "check_transition"]


def _short(value: Any) -> str:
    """One argument as part of a line; a source text is only named."""
    if isinstance(value, list):
        shown = " ".join(map(_short, value[:4]))
        return shown + (f" and {len(value) - 4} more" if len(value) > 4 else "")
    text = str(value)
    return "(source text)" if "\n" in text else text


class Job(Record):
    """One row of the jobs table. Times are UTC seconds since the epoch; ids have 128 random bits."""

    id: str
    tool: str
    params: dict[str, Any]
    state: JobState
    resources: tuple[str, ...] = ()
    timeout_s: float
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    position: int | None = Field(default=None, description="Jobs ahead in the queue; set while queued.")
    progress: Progress | None = None
    pid: int | None = Field(default=None, description="The supervisor's process id while running.")
    exit_code: int | None = None
    reason: str | None = Field(default=None, description="Why it failed, was cancelled or was lost.")
    principal: str = "local"
    envelope: dict[str, Any] | None = Field(default=None, description="The answer, written by the worker itself.")
    run_dir: str
    seq: int = 0

    @property
    def subject(self) -> str:
        """The job's subject in a line: its targets, programs or files; empty if the tool's name says everything."""
        texts = [_short(value) for name in SUBJECTS if (value := self.params.get(name)) not in (None, [], "")]
        line = " ".join(texts)
        return line if len(line) <= MAX_SUBJECT else line[: MAX_SUBJECT - 1] + "…"
