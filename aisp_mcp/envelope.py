"""The shape of every answer, the same for every front."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from aisp_mcp.records import Record


class Status(StrEnum):
    """Outcome of a call. `error` is the only one that sets MCP's isError."""

    OK = "ok"
    ERROR = "error"
    QUEUED = "queued"
    RUNNING = "running"


class NextStep(Record):
    """A call that is valid on this machine, and the reason to make it."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    why: str | None = None


class ErrorInfo(Record):
    """A refusal or failure."""

    code: str
    message: str
    hint: str | None = None
    next_steps: list[NextStep] = Field(default_factory=list)
    kind: str = Field(default="AispError", description="Its class in errors.py, for exit codes and HTTP statuses.")


class Progress(Record):
    """Progress of a job: done of total steps, and the current activity."""

    done: float = 0.0
    total: float | None = None
    message: str | None = None


class Ticket(Record):
    """A job that is not finished: query it again with aisp_job_wait."""

    job_id: str
    state: str
    poll_after_s: float
    position: int | None = None
    progress: Progress | None = None


class Truncated(Record):
    """Omitted part of the result, and the exact way to get it."""

    what: list[str]
    how_to_get: str


class Meta(Record):
    """Facts about the answer itself. `at` is UTC, RFC 3339."""

    duration_ms: float
    version: str
    at: str
    host: str | None = Field(default=None, description="The machine it comes from, if another one.")


class Envelope(Record):
    """The answer. Nothing is repeated: no echo of the arguments, no unasked context."""

    tool: str
    status: Status
    result: Any = None
    error: ErrorInfo | None = None
    job: Ticket | None = None
    confirm: str | None = Field(
        default=None, description="Nothing was done: ask the user this, then call again with confirm=true."
    )
    truncated: Truncated | None = None
    nonfinite: list[str] | None = Field(default=None, description="Paths of numbers that were NaN or infinite.")
    meta: Meta
