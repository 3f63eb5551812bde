"""The state of a job, as its executor reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["waiting", "running", "ended", "unknown"]


@dataclass(frozen=True)
class ExecutorState:
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
