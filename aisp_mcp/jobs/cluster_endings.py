"""Endings of cluster jobs: the answer that the node left, or Slurm's report if there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError
from aisp_mcp.jobs import endings
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.base import Seen
from aisp_mcp.store.cluster import ClusterQueue, take_rows
from aisp_mcp.store.records.job_state import JobState

# Slurm's word → our code and state.
_ENDINGS = {
    "CANCELLED": ("CANCELLED", JobState.CANCELLED),
    "TIMEOUT": ("TIMEOUT", JobState.FAILED),
    "DEADLINE": ("TIMEOUT", JobState.FAILED),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY", JobState.FAILED),
    "NODE_FAIL": ("NODE_FAIL", JobState.FAILED),
    "BOOT_FAIL": ("NODE_FAIL", JobState.FAILED),
    "PREEMPTED": ("PREEMPTED", JobState.FAILED),
    "COMPLETED": ("NO_RESULT", JobState.FAILED),
}


def take_answer(cluster: ClusterQueue, job_id: str, left: dict[str, Any]) -> bool:
    """End a job with the answer that its node wrote. left: exit.json. False if the answer itself is not visible yet."""
    row = cluster.queue.row(job_id)
    answer = endings.answer_of(row) if row is not None else None
    if row is None or answer is None:
        return False
    rows = handover.read(Path(row["run_dir"]), handover.ROWS)
    cluster.start(job_id, left["started_at"])
    try:
        with cluster.db.transaction():
            cluster.queue.end(
                job_id,
                endings.state_of(answer),
                exit_code=left["exit_code"],
                reason=endings.sentence(answer),
                envelope=answer,
            )
            take_rows(cluster.db, rows or {})
    except AispError as error:
        if error.code != "JOB_TRANSITION":
            raise
    return True


def end_without_answer(cluster: ClusterQueue, job_id: str, seen: Seen) -> None:
    """End a job as Slurm reports its end. Raises AispError JOB_TRANSITION if it already has."""
    row = cluster.queue.row(job_id)
    if row is None:
        return
    left = handover.read(Path(row["run_dir"]), handover.EXIT) or {}
    if seen.phase == "unknown":
        code, state = ("CANCELLED", JobState.CANCELLED) if row["cancel"] or left else ("LOST", JobState.LOST)
        ending = f"Slurm no longer knows its job {seen.handle}, and it left no answer"
    else:
        # Only its batch script was signalled: Slurm has seen an ordinary end.
        ordinary = left.get("state") == JobState.CANCELLED and seen.word in ("COMPLETED", "FAILED")
        code, state = _ENDINGS.get("CANCELLED" if ordinary else seen.word, ("CRASHED", JobState.FAILED))
        ending = seen.message + (f", exit code {seen.exit_code}" if seen.word == "FAILED" else "")
    message = f"{row['tool']}: {ending}."
    answer = endings.failure(row["tool"], job_id, code, message, row["started_at"])
    if state is JobState.LOST:
        cluster.start(job_id, row["created_at"])
    cluster.queue.end(job_id, state, exit_code=seen.exit_code, reason=f"{code}: {message}"[:500], envelope=answer)
