"""The states of a job and the only check of their changes. Standard library only, because supervisors start often."""

from __future__ import annotations

from enum import StrEnum

from aisp_mcp.errors import AispError


class JobState(StrEnum):
    """queued → running → succeeded | failed | cancelled | lost. A queued job may also be cancelled, fail to start
    or be lost.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def terminal(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


_ALLOWED = {
    JobState.QUEUED: {JobState.RUNNING, JobState.CANCELLED, JobState.FAILED, JobState.LOST},
    JobState.RUNNING: {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.LOST},
}


def check_transition(old: JobState, new: JobState) -> None:
    """Check a change of state. Raises AispError JOB_TRANSITION."""
    if new not in _ALLOWED.get(old, set()):
        raise AispError("JOB_TRANSITION", f"A job that is {old} cannot become {new}.")
