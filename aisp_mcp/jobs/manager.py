"""Submit, query and cancel jobs. Its only state is the pids to reap."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError, Refused
from aisp_mcp.jobs import endings, log, ready, starting
from aisp_mcp.jobs.environment import remembered
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.choice import elsewhere
from aisp_mcp.jobs.executors.inprocess import Inprocess
from aisp_mcp.jobs.executors.local import Local
from aisp_mcp.jobs.executors.placement import chosen_executor, engine, is_elsewhere, placement, request
from aisp_mcp.jobs.executors.slurm import rehearse
from aisp_mcp.process import tree
from aisp_mcp.process.python import search_path
from aisp_mcp.settings import QueueSettings, Settings
from aisp_mcp.store.database import Store
from aisp_mcp.store.files import make_folder
from aisp_mcp.store.jobs import Submission
from aisp_mcp.store.records.job import Job, JobState

LOOK_AFTER_S = 1.0  # seconds between a waiting reader's checks for a stalled queue


class Jobs:
    """Jobs over a store. Any number of these, in any number of processes, may share one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._children: set[int] = set()
        self._lock = threading.Lock()
        self._looked = 0.0

    def submit(
        self,
        tool: str,
        params: dict[str, Any],
        *,
        resources: Sequence[str] = (),
        timeout_s: float,
        principal: str = "local",
        env: Mapping[str, str] | None = None,
        work: Callable[[Job], str] | None = None,
        tell: Callable[[Job], object] = lambda _: None,
        job_id: str | None = None,
        commits: Mapping[str, Any] | None = None,
        submission: Submission | None = None,
    ) -> Job:
        """Queue a job and start it if it is its turn; returns at once. env: variables on top of this process's own.

        work: for the executor inprocess, which returns when the job has ended: runs it and returns its answer as JSON.
        tell: is given that job while it waits. job_id: the id that it has where it comes from. commits: the repository
        and the revisions that it compares. submission: what a client of a judge server said of it. Raises StoreError,
        in particular STORE_FULL, Refused QUEUE_FULL and UsageError BAD_EXECUTOR, BAD_PLACEMENT; then no job is created.
        """
        environ = {**os.environ, **self._settings_env(), **(env or {})}
        executor = chosen_executor(environ)
        job = self._job(tool, params, resources, timeout_s, principal, job_id)
        if is_elsewhere(executor):
            wanted = request(executor, environ, timeout_s, exclusive=bool(resources))
            self._enter([self._of_cluster(job)], environ, engine(executor), [{**wanted, **(commits or {})}])
        else:
            self._enter([job], environ, executor, [None], submission=submission)
        if executor == "inprocess" and work is not None:
            Inprocess(self.store, work, tell, self._look_after).run(job, self.settings.parallel_jobs)
        return self.store.job(job.id)

    def submit_array(
        self,
        tool: str,
        tasks: Sequence[tuple[dict[str, Any], dict[str, Any]]],
        *,
        resources: Sequence[str],
        timeout_s: float,
        principal: str = "local",
        env: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Queue a job per task, submitted to Slurm as one array. tasks: (params, data remembered in its row).

        Raises as submit(), and as rehearse() if Slurm would refuse them.
        """
        environ = {**os.environ, **self._settings_env(), **(env or {})}
        common = placement(environ, timeout_s, exclusive=bool(resources)).as_dict()
        rehearse(common, self.store.home)  # what Slurm refuses would otherwise fail once per task
        jobs = [self._of_cluster(self._job(tool, params, (), timeout_s, principal)) for params, _ in tasks]
        array = {"id": secrets.token_urlsafe(16), "folder": jobs[0].run_dir}
        placements = [
            {**common, "array": {**array, "index": index, **task_note}} for index, (_, task_note) in enumerate(tasks)
        ]
        folders = {str(index): job.run_dir for index, job in enumerate(jobs)}
        self._enter(jobs, environ, "slurm", placements, folders)
        return self.store.jobs([job.id for job in jobs])

    def keep_ready(self, tool: str, modules: Sequence[str], folder: Path, seconds: float) -> None:
        """Keep a process from which jobs of this store start sooner (standby.py), until the folder is removed.

        modules: those that the tool imports when it is called. Raises OSError.
        """
        cwd = os.getcwd()
        stored = {**remembered({**os.environ, **self._settings_env()}), **search_path(os.environ, cwd)}
        env = starting.variables(stored, self.store.home)
        pid = ready.keep(self.store.home, env, [tool, *modules], folder, seconds)
        with self._lock:
            self._children.add(pid)

    def _job(
        self,
        tool: str,
        params: dict[str, Any],
        resources: Sequence[str],
        timeout_s: float,
        principal: str,
        job_id: str | None = None,
    ) -> Job:
        job_id = job_id or f"j_{secrets.token_urlsafe(16)}"
        return Job(
            id=job_id,
            tool=tool,
            params=params,
            state=JobState.QUEUED,
            resources=tuple(sorted(set(resources))),
            timeout_s=timeout_s,
            created_at=time.time(),
            principal=principal,
            run_dir=str(self.store.home / "runs" / job_id),
        )

    def _of_cluster(self, job: Job) -> Job:
        """The job without this machine's resources; it does not count among its jobs."""
        return job.model_copy(update={"resources": (f"elsewhere:{job.id}",)})

    def _enter(
        self,
        jobs: list[Job],
        environ: Mapping[str, str],
        executor: str,
        placements: Sequence[dict[str, Any] | None],
        array: dict[str, str] | None = None,
        submission: Submission | None = None,
    ) -> None:
        """Make folders and rows of jobs, all or none, and start those that may run. array: run folders by task."""
        cwd = os.getcwd()
        environment = {**remembered(environ), **search_path(environ, cwd)}
        try:
            for job in jobs:
                make_folder(Path(job.run_dir))
                if executor == "slurm":
                    facts = job.model_dump(mode="json", include={"id", "tool", "params", "timeout_s", "principal"})
                    handover.write(Path(job.run_dir), handover.REQUEST, {**facts, "cwd": cwd})
            if array:
                handover.write(Path(jobs[0].run_dir), handover.ARRAY, array)
            common: dict[str, Any] = {"executor": executor, "cwd": cwd, "python": sys.executable, "env": environment}
            with self.store.db.transaction():
                self._refuse_too_many(jobs[0].principal, len(jobs))
                for job, placement_row in zip(jobs, placements, strict=True):
                    self.store.insert_job(job, placement=placement_row, submission=submission, **common)
        except AispError:
            for job in jobs:
                shutil.rmtree(job.run_dir, ignore_errors=True)
            raise
        self._start_ready(wake=is_elsewhere(executor))

    def _refuse_too_many(self, principal: str, added: int) -> None:
        """Prevent one principal from filling the queue. Raises Refused QUEUE_FULL."""
        limit = QueueSettings.from_env().queued_jobs
        if self.store.count_queued(principal) + added > limit:
            raise Refused(
                "QUEUE_FULL",
                f"{limit} jobs of {principal} are already queued, which is the limit.",
                "Wait for some of them, or cancel them. AISP_QUEUED_JOBS is the limit.",
                [("aisp_job_list", {"state": "queued"})],
            )

    def get(self, job_id: str, principal: str | None = None) -> Job:
        """One job as it is now. Raises NotFound UNKNOWN_JOB, also for another principal's job."""
        job = self.peek([job_id])[0]
        if principal is not None and job.principal != principal:
            from aisp_mcp.store.jobs import unknown_job

            raise unknown_job(job_id)
        return job

    def peek(self, ids: Sequence[str]) -> list[Job]:
        """Current jobs, for frequent polling: one query, and occasionally a check for stalled ones."""
        jobs = self.store.jobs(ids)
        if all(job.state.terminal for job in jobs):
            return jobs
        return self.store.jobs(ids) if self._look_after() else jobs

    def cancel(self, job_id: str) -> Job:
        """Ask a job to end. A queued job has ended on return; a running one, or one of a cluster, ends within moments.

        Raises NotFound.
        """
        job = self.store.job(job_id)
        row = self.store.queue.row(job_id)
        if row is not None and is_elsewhere(row["executor"]):
            self.store.ask_cancel(job_id)
            self._start_ready(wake=True)
            return self.store.job(job_id)
        message = f"{job.tool} was cancelled before it started."
        if self.store.cancel_queued(job_id, endings.failure(job.tool, job_id, "CANCELLED", message, None)):
            self._start_ready()
            return self.store.job(job_id)
        self.store.ask_cancel(job_id)
        row = self.store.queue.row(job_id)
        if row is not None and row["state"] == JobState.RUNNING and row["executor"] == "local":
            seen_here = row["namespace"] == tree.namespace()
            if not Local().cancel(row) and seen_here:
                self.reconcile()
        return self.store.job(job_id)

    def reconcile(self) -> int:
        """End vanished jobs and start waiting ones; returns how many had vanished. Raises StoreError."""
        changed = starting.reconcile(self.store.queue)
        self._start_ready()
        return changed

    def log_tail(self, job_id: str, limit: int = 2000) -> str:
        """The last `limit` bytes of a job's output. Raises NotFound UNKNOWN_JOB."""
        row = self.store.queue.row(job_id)
        if row is None:
            return log.tail(Path(self.store.job(job_id).run_dir), limit)
        return (elsewhere(row["executor"]) if is_elsewhere(row["executor"]) else Local()).tail(row, limit)

    def _settings_env(self) -> dict[str, str]:
        """The settings as variables, so that a worker sees the same ones as its server."""
        return {**self.settings.as_env(), "AISP_HOME": str(self.store.home)}

    def _start_ready(self, wake: bool = False) -> None:
        """Start jobs that may run, and watchers of those elsewhere. wake: make the watchers look at once."""
        started = starting.start_ready(self.store.queue, self.settings.parallel_jobs, self.store.home)
        watchers = starting.ensure_watchers(self.store.db, self.store.home, wake)
        with self._lock:
            self._children.update([*started, *watchers])
            starting.reap(self._children)

    def _time_to_look(self) -> bool:
        with self._lock:
            due = time.monotonic() - self._looked >= LOOK_AFTER_S
            if due:
                self._looked = time.monotonic()
            return due

    def _look_after(self) -> bool:
        """Check for stalled jobs, unless the last check was a moment ago; return True if any had vanished."""
        return self._time_to_look() and self.reconcile() > 0
