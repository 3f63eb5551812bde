"""Files exchanged between the submitting process and a cluster node: in the job's run folder, written atomically.

job.json: what to run. claim: which submission runs it. array.json: run folders of an array's tasks by index.
progress.json, heartbeat, log.txt: while it runs. envelope.json: its answer. rows.json: rows for the store. exit.json:
written last, when its whole tree has ended.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from aisp_mcp.store.files import write_atomic

REQUEST, CLAIM, PROGRESS, ROWS, EXIT = "job.json", "claim", "progress.json", "rows.json", "exit.json"
ARRAY = "array.json"


def write(folder: Path, name: str, value: Any) -> None:
    """Write one file, for its owner only. Raises StoreError, OSError."""
    write_atomic(folder / name, json.dumps(value), mode=0o600)


def read(folder: Path, name: str) -> Any | None:
    """The value of one file; None if it does not exist or cannot be read."""
    try:
        return json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def take_claim(folder: Path, handle: str) -> bool:
    """Make this submission the one that runs. False if another one has claimed the job: a job runs under one id."""
    try:
        fd = os.open(folder / CLAIM, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return (folder / CLAIM).read_text("utf-8") == handle
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(handle)
    return True


def claimed_by(folder: Path) -> str | None:
    """The submission that runs this job; None before it has started."""
    try:
        return (folder / CLAIM).read_text("utf-8") or None
    except OSError:
        return None
