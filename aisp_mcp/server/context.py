"""Services that a tool may use. Built once per process, faked in tests; the heavy parts open at first use."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aisp_mcp.settings import Settings

if TYPE_CHECKING:
    from aisp_mcp.envelope import Envelope
    from aisp_mcp.jobs.manager import Jobs
    from aisp_mcp.jobs.questions import Question, Reply
    from aisp_mcp.store.database import Store
    from aisp_mcp.store.jobs import Submission

# The user who runs this program: the command line, and the server over standard input and output.
LOCAL = "local"
DESTINATIONS = ("to", "export_json", "export_markdown")  # arguments that name files to write

ProgressFn = Callable[[float, float | None, str | None], None]


def _no_progress(done: float, total: float | None, message: str | None) -> None:
    """Ignore progress: the server's own calls are short."""


@dataclass
class Context:
    """Services with I/O, opened at first use.

    settings: from the environment. progress: (done, total, message), shown while a call runs. run_dir: the folder of
    the running job for its artifacts, None outside a job. allow_write: folders outside the artifact root that the user
    allowed with --allow-write. principal: the caller. job_env: variables for jobs on top of this process's own. tools:
    names of the tools that may be called here, None for all. root: the context that owns the store and the jobs, None
    for this one. submission: what a client of a judge server said of the job of this call. call_in_subprocess: runs a
    call in another process, if this one must stay responsive; else None.
    """

    settings: Settings = field(default_factory=Settings.from_env)
    progress: ProgressFn = _no_progress
    job_id: str | None = None
    run_dir: Path | None = None
    allow_write: tuple[Path, ...] = ()
    principal: str = LOCAL
    job_env: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    tools: frozenset[str] | None = None
    root: Context | None = None
    submission: Submission | None = None
    call_in_subprocess: Callable[[str, dict[str, Any], Context], Envelope] | None = None

    def __post_init__(self) -> None:
        if not self.allow_write and self.settings.allow_write:
            self.allow_write = tuple(Path(text) for text in self.settings.allow_write.split(os.pathsep) if text)

    def ask(self, questions: Mapping[str, Question], patience_s: float = 600.0) -> dict[str, Reply] | None:
        """Inside a job: ask its user to fill in forms. None if the user cannot be asked or does not answer.

        Time spent waiting counts against the job's timeout. Raises ValueError for a name the job has used before.
        """
        from aisp_mcp.jobs import questions as forms

        if self.run_dir is None or forms.ASKABLE not in os.environ:
            return None
        return forms.ask(self.run_dir, questions, patience_s)

    def bench_roots(self, folders: Sequence[str] | None) -> tuple[Path, ...]:
        """The folders of suites that a call names, else those of the settings."""
        return tuple(Path(text).expanduser() for text in folders) if folders else self.settings.bench_roots

    @property
    def sees(self) -> str | None:
        """Owner of the visible jobs and runs; None (all owners) for the local user."""
        return None if self.principal == LOCAL else self.principal

    def under(self, principal: str, job_env: Mapping[str, str] | None = None) -> Context:
        """This context for another principal: the same store and jobs, as that principal sees them."""
        if principal == self.principal and not job_env:
            return self
        other = copy.copy(self)
        other.principal, other.job_env = principal, job_env or {}
        other.root = self.root or self
        return other

    @cached_property
    def store(self) -> Store:
        """The SQLite store under settings.home; created at first use. Raises StoreError."""
        from aisp_mcp.store.database import Store

        return self.root.store if self.root else Store(self.settings.home)

    @cached_property
    def jobs(self) -> Jobs:
        """The job manager over the store."""
        from aisp_mcp.jobs.manager import Jobs

        return self.root.jobs if self.root else Jobs(self.store, self.settings)
