"""python -m aisp_mcp.jobs.host: run jobs for other machines, which speak to it through a connection of ssh.

A job is an ordinary one of this user's machine, in a store of its own: it waits for the device, has a supervisor, and
outlives the connection. This process only translates; if the connection ends, so does it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from aisp_mcp.errors import AispError
from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors import receiving
from aisp_mcp.jobs.executors.receiving import Refusal
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.settings import Settings
from aisp_mcp.store.cluster import rows_made
from aisp_mcp.store.database import Store
from aisp_mcp.store.schema import VERSION
from aisp_mcp.system.gpu import nvml

LOG_BYTES = 64_000  # of the end of a log, while the job runs
KEEP_DAYS, KEEP_MB = 7.0, 4096.0  # answers that nobody has fetched
_JOB_ID = re.compile(r"j_[\w-]{8,64}", re.ASCII)
_LEFT_HERE = ("heartbeat", "questions")


class Host:
    """The requests about jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.store = jobs.store

    def submit(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """Queue a job under the id it has where it comes from; once, however often it is sent."""
        job = request["job"]
        if not _JOB_ID.fullmatch(job["id"]):
            raise Refusal("HOST_FAILED", f"{job['id'][:80]!r} is not the id of a job")
        if self.store.queue.row(job["id"]) is None:
            with contextlib.chdir(job["cwd"] or "/"):
                try:
                    self.jobs.submit(
                        job["tool"],
                        job["params"],
                        resources=nvml.measuring_locks() if job["exclusive"] else (),
                        timeout_s=job["timeout_s"],
                        principal=job["principal"],
                        env={**job["env"], "AISP_EXECUTOR": "local"},
                        job_id=job["id"],
                    )
                except AispError:
                    if self.store.queue.row(job["id"]) is None:  # another connection may have been quicker
                        raise
        return {}

    def poll(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """States of jobs; None for one that is not known. request: the size of the log that is known of each."""
        self.jobs.reconcile()
        found = {}
        for job_id, size in request["jobs"].items():
            row = self.store.queue.row(job_id)
            found[job_id] = None if row is None else self._state(job_id, row, size)
        return {"jobs": found, "clock": time.time()}

    def _state(self, job_id: str, row: Any, known: int) -> dict[str, Any]:
        names = ("state", "exit_code", "reason", "started_at", "ended_at", "progress")
        state = {name: row[name] for name in names}
        folder = Path(row["run_dir"])
        size = sum((folder / name).stat().st_size for name in (log.NAME, log.OLDER) if (folder / name).exists())
        if size != known:
            state["log"], state["log_size"] = log.tail(folder, LOG_BYTES), size
        if row["state"] == "queued":
            state["position"] = self.store.job(job_id).position
        return state

    def cancel(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """Ask a job to end; known is False if it never arrived."""
        known = self.store.queue.row(request["id"]) is not None
        if known:
            self.jobs.cancel(request["id"])
        return {"known": known}

    def fetch(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """The rows and files of a job that has ended: names and sizes, and then the contents, one after another."""
        row = self.store.queue.row(request["id"])
        if row is None:
            raise Refusal("HOST_FAILED", f"{request['id']} is not known")
        folder = Path(row["run_dir"])
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
        files = [path for path in files if path.relative_to(folder).parts[0] not in _LEFT_HERE]
        sizes = [path.stat().st_size for path in files]
        return {
            "rows": _rows_of(self.store, row),
            "envelope": row["envelope"],
            "folder": str(folder),
            "files": [[str(path.relative_to(folder)), size] for path, size in zip(files, sizes, strict=True)],
            "bytes": sum(sizes),
            "payload": receiving.contents(zip(map(str, files), sizes, strict=True)),
        }

    def forget(self, request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
        """Remove a job that has ended, with its folder and its runs: they are now where they were asked for."""
        row = self.store.queue.row(request["id"])
        if row is not None and row["ended_at"] is not None:
            self.store.remove_job(request["id"])
        return {}


def _rows_of(store: Store, row: Any) -> dict[str, list[dict[str, Any]]]:
    """The runs of a job, and what it measured of GPUs: one without an id, such as "cpu", is another one elsewhere."""
    made = rows_made(store.db)
    began, ended = row["started_at"] or row["created_at"], row["ended_at"] or time.time()
    return {
        "runs": [run for run in made["runs"] if run["job_id"] == row["id"]],
        "measurements": [
            value
            for value in made["measurements"]
            if began <= value["created_at"] <= ended and value["device"] != "cpu"
        ],
    }


def main() -> int:
    """Answer until the connection ends."""
    own = os.dup(1)
    os.dup2(2, 1)
    target = os.fdopen(own, "wb")
    try:
        settings = Settings.from_env()
        # Of this version of the store: an installed aisp of another one must not find it migrated.
        store = Store(settings.home / f"host-{VERSION}")
    except (AispError, OSError) as error:
        code = error.code if isinstance(error, AispError) else "HOST_FAILED"
        receiving.reply({"error": code, "message": str(error)}, target)
        return 1
    with store:
        shelf = receiving.Shelf(receiving.base())
        with contextlib.suppress(OSError):
            shelf.forget_old()
        store.clean(KEEP_DAYS, KEEP_MB, dry_run=False)
        host = Host(Jobs(store, replace(settings, home=store.home)))
        own_requests = {name: getattr(host, name) for name in ("submit", "poll", "cancel", "fetch", "forget")}
        receiving.reply({"ready": True}, target)
        receiving.serve({**receiving.shelf_handlers(shelf), **own_requests}, sys.stdin.buffer, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
