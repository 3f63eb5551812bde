"""Clean up after a vanished supervisor: its row, its processes, its scratch folder. Any reader may do so."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError, StoreError
from aisp_mcp.jobs import endings
from aisp_mcp.jobs.executors.local import MARK, supervised
from aisp_mcp.process import tree
from aisp_mcp.store.queue import Queue
from aisp_mcp.store.records.job_state import JobState


def scratch_of(row: Any) -> Path:
    """The job's own TMPDIR: short, because sockets are created there, and removed when the job has ended.

    It is under the TMPDIR that the job was submitted with, so that another process also finds it.
    """
    return Path(json.loads(row["env"] or "{}").get("TMPDIR") or "/tmp") / f"aisp-{row['id']}"


def reconcile(queue: Queue) -> int:
    """End every row whose supervisor is gone; returns how many. Raises StoreError."""
    return sum(_take_over(queue, row) for row in queue.owned() if not supervised(row))


def _take_over(queue: Queue, seen: Any) -> bool:
    """End a job whose supervisor is gone: with the answer if the worker has written it, else as lost. Processes end
    first, then the row.
    """
    if seen["namespace"] == tree.namespace():
        tree.sweep_marked(MARK, seen["id"])
    shutil.rmtree(scratch_of(seen), ignore_errors=True)
    with queue.db.transaction():
        row = queue.row(seen["id"])
        if row is None or JobState(row["state"]).terminal or supervised(row):
            return False  # ended, or claimed anew, while we looked
        try:
            _end(queue, row)
        except StoreError as error:
            if error.code == "STORE_FULL":
                queue.db.free_reserve()
            raise
        except AispError:
            return False
        return True


def _end(queue: Queue, row: Any) -> None:
    answer = endings.answer_of(row)
    if answer is not None:
        queue.end(row["id"], endings.state_of(answer), reason=endings.sentence(answer), envelope=answer)
        return
    message = f"{row['tool']} vanished: its supervisor (pid {row['pid']}) is gone and it left no answer."
    answer = endings.failure(row["tool"], row["id"], "LOST", message, row["started_at"])
    queue.end(row["id"], JobState.LOST, reason=f"LOST: {message}", envelope=answer)
    with contextlib.suppress(OSError):
        (Path(row["run_dir"]) / "envelope.json").write_text(answer, "utf-8")
