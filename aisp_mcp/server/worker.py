"""The process of a job: python -m aisp_mcp.server.worker TOOL --job ID --home DIR --cwd DIR.

It reads parameters as JSON from standard input and writes the answer itself, into the store and into the run folder, so
that no watcher has to be alive.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from aisp_mcp.errors import StoreError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from aisp_mcp.envelope import Envelope
    from aisp_mcp.server.context import Context, ProgressFn
    from aisp_mcp.store.database import Store
    from aisp_mcp.store.records.job import Job

_PROGRESS_S = 0.1
_PROGRESS_BURST = 10.0
_FULL_RETRIES, _FULL_RETRY_S = 20, 0.5


def main() -> int:
    """Run one tool to its end: 0 for an answer, 1 for an error, which is an answer too."""
    parser = argparse.ArgumentParser(
        prog="aisp_mcp.server.worker", description="Run one job; started by its supervisor."
    )
    parser.add_argument("tool")
    parser.add_argument("--job", required=True)
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--cwd", required=True, help="the folder from which the tool's relative paths are resolved")
    args = parser.parse_args()
    os.chdir(args.cwd)
    params = json.load(sys.stdin)
    _close_stdin()

    from aisp_mcp.jobs import ready
    from aisp_mcp.jobs.tracing import job_span
    from aisp_mcp.server import registry
    from aisp_mcp.server.context import Context
    from aisp_mcp.server.dispatch import execute, load_tool
    from aisp_mcp.settings import Settings

    settings = replace(Settings.from_env(), home=args.home)
    load_tool(args.tool, settings)
    ctx = Context(settings=settings, job_id=args.job)
    job = ctx.store.job(args.job)
    ctx.run_dir = Path(job.run_dir)
    ctx.principal = job.principal
    ctx.progress = throttled(ctx.store, args.job)
    with job_span(args.tool, args.job), _lease(args.tool, job):
        envelope = execute(args.tool, params, ctx)
    if settings.stay_loaded and registry.get(args.tool).verdict:
        ready.ask(args.home, args.job, args.tool)
    keep(ctx, args.job, envelope)
    return 0 if envelope.status == "ok" else 1


@contextlib.contextmanager
def _lease(tool: str, job: Job) -> Iterator[None]:
    """On a judge server, the lease of the device for a job that measures without a comparison, which has its own."""
    from aisp_mcp.judge.lease import Lease
    from aisp_mcp.server import registry
    from aisp_mcp.settings import PoolSettings

    measures = bool(job.resources) and not registry.get(tool).verdict
    device = "cuda" if any(name.startswith("gpu:") for name in job.resources) else "cpu"
    lease = Lease(PoolSettings.from_env().leases if measures else None, device)
    lease.take()
    try:
        yield
    finally:
        lease.give()


def _close_stdin() -> None:
    """Close standard input: later readers, including children, find its end."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)


def throttled(store: Store, job_id: str) -> ProgressFn:
    """Write progress at most ten times a second on average, ten at once, and never fail the job for it.

    At once, because the message before a long step must not be dropped just because another one came shortly before it.
    """
    from aisp_mcp.envelope import Progress

    saved, last = _PROGRESS_BURST, time.monotonic()

    def progress(done: float, total: float | None, message: str | None) -> None:
        nonlocal saved, last
        now = time.monotonic()
        saved, last = min(_PROGRESS_BURST, saved + (now - last) / _PROGRESS_S), now
        if saved >= 1 or done == total:
            saved -= 1
            with contextlib.suppress(StoreError):
                store.set_progress(job_id, Progress(done=done, total=total, message=message))

    return progress


def keep(ctx: Context, job_id: str, envelope: Envelope) -> None:
    """Write the answer, to the folder first: the supervisor finds it there if the store refuses it.

    On a full disk, the reserve is released and writing is retried for a while. Raises StoreError.
    """
    from aisp_mcp.store.files import write_atomic

    assert ctx.run_dir is not None
    text = envelope.model_dump_json(exclude_none=True)
    for attempt in range(_FULL_RETRIES):
        try:
            write_atomic(ctx.run_dir / "envelope.json", text)
            ctx.store.finish(job_id, envelope)
            return
        except StoreError as error:
            if error.code not in ("STORE_FULL", "STORE_BUSY") or attempt == _FULL_RETRIES - 1:
                raise
            ctx.store.db.free_reserve()
            time.sleep(_FULL_RETRY_S if attempt else 0.0)


def load(tool: str, modules: Sequence[str]) -> None:
    """Import what a job of this tool imports, and build the validators of its records, for a process whose forks run()
    jobs. modules: those that the tool imports when it is called.
    """
    from aisp_mcp.jobs import tracing  # noqa: F401
    from aisp_mcp.records import Params, Record
    from aisp_mcp.server.dispatch import load_tool
    from aisp_mcp.settings import Settings

    load_tool(tool, Settings.from_env())
    for name in modules:
        importlib.import_module(name)
    records: list[type[BaseModel]] = [Record, Params]
    for record in records:
        records += record.__subclasses__()
        record.model_rebuild()


def run() -> NoReturn:
    """Run the job of this process, and end it."""
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    # At once, without finalizers: the answer is written, and a library's leftover thread must not delay the exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
