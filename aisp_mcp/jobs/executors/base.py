"""An executor elsewhere as its watcher uses it, and the state of a job as it reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

Phase = Literal["waiting", "running", "ended", "unknown", "silent"]


@dataclass(frozen=True)
class ExecutorState:
    """State of a job as its executor reports it.

    word: the executor's own term, such as NODE_FAIL. message: one sentence for a person. phase "unknown": the executor
    was queried and does not know the job; "silent": it did not answer, and nothing has changed. duplicates: further
    submissions under the same name.
    """

    phase: Phase
    word: str = ""
    message: str = ""
    handle: str | None = None
    nodes: str = ""
    exit_code: int | None = None
    duplicates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    """The outcome of an attempt. handle: the executor's own id; None while it is not known whether it has the job."""

    handle: str | None
    message: str


class Executor(Protocol):
    """Runs jobs elsewhere. It hands their files over in the run folder, as handover.py says.

    title: its name in sentences. tick_s: seconds between two looks at its jobs. settle_s: after an attempt of unknown
    outcome, the next one waits this long. grace_s: an answer may take this long to appear after the end. linger_s: its
    watcher stays this long after the last job.
    """

    title: str
    tick_s: ClassVar[float]
    settle_s: ClassVar[float]
    grace_s: ClassVar[float]
    linger_s: ClassVar[float]

    def submission_of(self, row: Any) -> str:
        """A name that all rows share that are submitted together."""

    def submit(self, rows: Sequence[Any]) -> dict[str, Submission]:
        """Submit jobs, unless an earlier attempt succeeded; outcomes by id. Raises AispError if they are refused."""

    def poll(self, rows: list[Any]) -> dict[str, ExecutorState]:
        """The states that are known, by id."""

    def cancel(self, row: Any) -> bool:
        """Ask for the end of a job. Returns True if it will end, or never arrived."""

    def discard(self, handle: str) -> None:
        """End a second submission of a job."""

    def tail(self, row: Any, limit: int) -> str:
        """The end of its log, at most `limit` bytes."""

    def forget(self, row: Any) -> None:
        """Remove what is left elsewhere of a job whose answer is here."""
