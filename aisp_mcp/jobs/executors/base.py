"""The protocol of an executor. Rows are those of the jobs table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

Phase = Literal["waiting", "running", "ended", "unknown"]


@dataclass(frozen=True)
class Seen:
    """State of a job as its executor reports it.

    word: the executor's own term, such as NODE_FAIL. message: one sentence for a person. phase "unknown": the executor
    was queried and does not know the job. duplicates: further submissions under the same name.
    """

    phase: Phase
    word: str = ""
    message: str = ""
    handle: str | None = None
    nodes: str = ""
    exit_code: int | None = None
    duplicates: tuple[str, ...] = ()


class Executor(Protocol):
    """Starts jobs and reports on them. Every method can be repeated without a second effect."""

    def submit(self, row: Any) -> str | None:
        """Start a job and return the executor's id of it; None if it is not known yet and must be queried again.

        Raises AispError when the job will never start.
        """

    def poll(self, rows: list[Any]) -> dict[str, Seen]:
        """States of jobs by our id; a job whose state is unavailable is left out."""

    def cancel(self, row: Any) -> bool:
        """Request the end of a job. Returns True if the request was delivered."""

    def tail(self, row: Any, limit: int) -> str:
        """The last `limit` bytes of its output."""
