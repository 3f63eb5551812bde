"""Submissions to a judge server: files by text or tarball, a ticket, and a place in the queue.

A submission is a job without a device of its own: workers take them by priority, and the judge holds the device only
while it measures (judge/lease.py). The same content under the same key is the same job.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError, NotFound, Refused, UsageError
from aisp_mcp.front.rest.answers import envelope_response, json_response
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.server.dispatch.pending import JobPending, outcome, waiting
from aisp_mcp.settings import PoolSettings
from aisp_mcp.store.files import write_atomic
from aisp_mcp.store.jobs import Submission
from aisp_mcp.store.records.job import Job, JobState

TOOL = "aisp_verify_candidate"
MAX_BODY, MAX_UNPACKED, MAX_FILES = 32 << 20, 128 << 20, 2000
FULL = ("POOL_FULL", "QUEUE_FULL")
NO_ROOM = ("DISK_FULL", "STORE_FULL")  # errors of this machine, not of a submission
RETRY_S = 5  # before any submission has shown how long one takes
PRIORITIES = range(-10, 11)
_KEY = re.compile(r"[\w.:/@-]{0,200}", re.ASCII)


@dataclass(frozen=True)
class Submitted:
    """One submission. tool: that judges it; files: contents by relative path; args: of the tool, which names them."""

    tool: str
    files: Mapping[str, bytes]
    args: dict[str, Any]
    key: str
    priority: int

    @property
    def digest(self) -> str:
        """Hash of everything that decides the answer."""
        contents = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(self.files.items())}
        return hashlib.sha256(json.dumps([self.tool, self.args, contents], sort_keys=True).encode()).hexdigest()


async def submit(request: Request, ctx: Context) -> Response:
    """POST /api/judge: a ticket, 202; 503 with Retry-After if the queue is full."""
    watch = Stopwatch(ctx)
    try:
        with tempfile.SpooledTemporaryFile(max_size=1 << 20) as body:
            await _receive(request, body)
            given = read(request, body)
        answer, headers = await anyio.to_thread.run_sync(_enter, given, ctx)
    except AispError as error:
        answer, headers = failure(TOOL, error, watch), {}
    response = envelope_response(request, answer, ctx)
    code = answer.error.code if answer.error is not None else ""
    if code in FULL:
        response.status_code = 503
        headers = {"Retry-After": str(retry_s(ctx))}
    if code == "TOO_LARGE":
        response.status_code = 413
    response.headers.update(headers)
    return response


async def state(request: Request, ctx: Context) -> Response:
    """GET /api/judge: workers, how many submissions wait, and how long one takes."""
    pool = PoolSettings.from_env()
    took = ctx.store.seconds_taken()
    facts = {"workers": pool.workers, "waiting": ctx.store.count_waiting(), "queue": pool.queue, "seconds_each": took}
    return json_response(request, facts)


async def ticket(request: Request, ctx: Context) -> Response:
    """GET /api/judge/{id}: the ticket of a submission that waits or runs, or its answer."""
    try:
        job = ctx.jobs.get(request.path_params["id"], ctx.sees)
    except NotFound as error:
        return envelope_response(request, failure(TOOL, error, Stopwatch(ctx)), ctx)
    response = envelope_response(request, outcome(job, ctx) if job.state.terminal else waiting(job, ctx), ctx)
    response.headers.update(_place(job, ctx))
    return response


async def _receive(request: Request, body: IO[bytes]) -> None:
    """Write the body to a file. Raises UsageError TOO_LARGE, as soon as it is known to be."""
    announced = request.headers.get("content-length", "0")
    size = int(announced) if announced.isdecimal() else 0
    if size <= MAX_BODY:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY:
                break
            body.write(chunk)
    if size > MAX_BODY:
        message = f"The submission has more than {MAX_BODY >> 20} MiB."
        raise UsageError("TOO_LARGE", message, "Send sources; let inputs be drawn.")
    body.seek(0)


def read(request: Request, body: IO[bytes]) -> Submitted:
    """The submission in a request: JSON with texts, or a tarball with arguments in the query. Raises UsageError."""
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        try:
            given = json.loads(body.read())
        except (ValueError, RecursionError):
            raise _bad("the body is not JSON") from None
        if not isinstance(given, dict):
            raise _bad("the body is not a JSON object")
        texts = given.get("files", {})
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise _bad("files is not an object of names and texts")
        files = {_checked(name): text.encode() for name, text in texts.items()}
        tool, args = given.get("tool", TOOL), given.get("args", {})
        key, priority = given.get("key", ""), given.get("priority", 0)
    else:
        files = dict(_unpacked(body))
        query = request.query_params
        tool, key = query.get("tool", TOOL), query.get("key", "")
        try:
            args, priority = json.loads(query.get("args", "{}")), int(query.get("priority", 0))
        except ValueError:
            raise _bad("args is not JSON, or priority not a number") from None
    if not isinstance(args, dict) or not args:
        raise _bad("args is not an object with the arguments of the tool")
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise _bad("key has other characters than letters, digits and _ . : / @ -, or more than 200")
    if not isinstance(priority, int) or priority not in PRIORITIES:
        raise _bad("priority is not a whole number from -10 to 10")
    return Submitted(str(tool), files, args, key, priority)


def _unpacked(body: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Regular files of a tarball, compressed or not. Raises UsageError BAD_SUBMISSION, TOO_LARGE."""
    count = size = 0
    try:
        with tarfile.open(fileobj=body, mode="r:*") as archive:
            for member in archive:
                if member.isdir():
                    continue
                count, size = count + 1, size + member.size
                if count > MAX_FILES or size > MAX_UNPACKED:
                    message = f"The tarball has more than {MAX_FILES} files or {MAX_UNPACKED >> 20} MiB."
                    raise UsageError("TOO_LARGE", message, "Send sources; let inputs be drawn.")
                if not member.isreg():
                    raise _bad(f"{member.name[:80]!r} is not a regular file")
                content = archive.extractfile(member)
                assert content is not None
                yield _checked(member.name), content.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _bad(f"the body is no tarball ({error})") from None


def _checked(name: str) -> str:
    """A relative path without surprises. Raises UsageError BAD_SUBMISSION."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or len(name) > 500 or not name.isprintable():
        raise _bad(f"{name[:80]!r} is not the name of a file below the submission")
    return str(path)


def _bad(problem: str) -> UsageError:
    hint = 'Such as {"files": {"slow.py": "…"}, "args": {"target": "slow.py:f", "candidate": "fast.py:f"}}.'
    return UsageError("BAD_SUBMISSION", f"The submission cannot be read: {problem}.", hint)


def _enter(given: Submitted, ctx: Context) -> tuple[Envelope, dict[str, str]]:
    """The ticket of a submission: of an earlier one with this content and key, or of a new one. Raises AispError."""
    tool = dispatch.offered(given.tool, ctx)
    if tool.job is None or not tool.verdict:
        raise _bad(f"{tool.name} judges nothing")
    digest = given.digest
    key = given.key or f"content:{digest}"
    if (known := _known(key, digest, ctx)) is not None:
        return waiting(known, ctx) if not known.state.terminal else outcome(known, ctx), _place(known, ctx)
    if ctx.store.count_waiting() >= PoolSettings.from_env().queue:
        raise Refused("POOL_FULL", "The queue of this judge server is full.", "Try again after Retry-After seconds.")
    folder = _unpack(given, digest, ctx)
    own = _submitting(ctx, Submission(digest, key, given.priority))
    answer = dispatch.start(tool.name, {**_absolute(given, folder), "wait_s": 0}, own)
    if isinstance(answer, JobPending):
        return answer.ticket(), _place(ctx.jobs.get(answer.job_id), ctx)
    if (known := _known(key, digest, ctx)) is not None:  # another request with this key was quicker
        return waiting(known, ctx), _place(known, ctx)
    return answer if isinstance(answer, Envelope) else answer.ticket(), {}


def _submitting(ctx: Context, submission: Submission) -> Context:
    """The context of a call that makes the job of a submission."""
    other = copy.copy(ctx)
    other.submission, other.root = submission, ctx.root or ctx
    return other


def _known(key: str, digest: str, ctx: Context) -> Job | None:
    """The job of an earlier submission under this key. Raises Refused KEY_REUSED if its content was another."""
    found = ctx.store.submitted(ctx.principal, key)
    if found is None:
        return None
    job_id, earlier = found
    if earlier != digest:
        message = f"The key {key[:80]!r} stands for another submission, {job_id}."
        raise Refused("KEY_REUSED", message, "Choose another key for other content.")
    job = ctx.store.job(job_id)
    no_room = (job.reason or "").partition(":")[0] in NO_ROOM
    if no_room or job.state in (JobState.CANCELLED, JobState.LOST):  # not judged: the same again is a new attempt
        ctx.store.free_key(job_id)
        return None
    return job


def _unpack(given: Submitted, digest: str, ctx: Context) -> Path:
    """Write the files where a job finds them; the same content is written once."""
    folder = ctx.settings.home / "submissions" / digest[:32]
    for name, data in given.files.items():
        target = folder / name
        if not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(target, data, mode=0o600)
    return folder


def _absolute(given: Submitted, folder: Path) -> dict[str, Any]:
    """The arguments with full paths where one names a file of the submission, alone or before a colon."""

    def full(value: Any) -> Any:
        if isinstance(value, str) and value.partition(":")[0] in given.files:
            return f"{folder}/{value}"
        return [full(item) for item in value] if isinstance(value, list) else value

    return {name: full(value) for name, value in given.args.items()}


def _place(job: Job, ctx: Context) -> dict[str, str]:
    """Headers that say how many are ahead, and in how many seconds it is expected to start."""
    if job.state is not JobState.QUEUED:
        return {}
    ahead, took = job.position or 0, ctx.store.seconds_taken(job.tool)
    headers = {"Aisp-Position": str(ahead)}
    if took is not None:
        headers["Aisp-Expected-Start"] = str(math.ceil((ahead + 1) * took / max(1, PoolSettings.from_env().workers)))
    return headers


def retry_s(ctx: Context) -> int:
    """Seconds until one more submission can be expected to fit."""
    took = None
    with suppress(AispError):
        took = ctx.store.seconds_taken()
    return RETRY_S if took is None else max(1, math.ceil(took / max(1, PoolSettings.from_env().workers)))
