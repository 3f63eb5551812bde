"""Files written whole or not at all, and folders of runs."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path

from aisp_mcp.errors import NotFound
from aisp_mcp.store.connection import full
from aisp_mcp.store.private import unwritable

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def write_atomic(path: Path, data: str | bytes, mode: int | None = None) -> None:
    """Write a temporary file, then rename it: a reader sees the old or the new file. mode: default follows the umask.

    Raises StoreError STORE_FULL, OSError.
    """
    raw = data.encode() if isinstance(data, str) else data
    partial = _partial(path)
    try:
        if mode is not None:
            partial.touch(mode=0o600)  # private before it has content
            partial.chmod(mode)
        partial.write_bytes(raw)
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full(path.parent) from error
        raise


def write_once(path: Path, data: bytes) -> None:
    """Write a private file and link it into place: a reader sees all of it, and the first of several writers wins.

    Raises FileExistsError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _partial(path)
    fd = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
        os.link(partial, path)
    finally:
        os.close(fd)
        partial.unlink()


def _partial(path: Path) -> Path:
    """A name of its own for each writer: threads share a process id, and so may containers."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def make_folder(folder: Path) -> None:
    """Make the folder of a new run, for its owner only. Raises StoreError STORE_FULL, STORE_UNWRITABLE."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full(folder.parent.parent) from error
        raise unwritable(folder.parent.parent, error) from error


def folder_of(home: Path, run_id: str) -> Path:
    """home/runs/<id>; not created here. Raises NotFound UNKNOWN_RUN for text that cannot be an id (or is a path)."""
    if not _ID.fullmatch(run_id):
        raise unknown_run(run_id)
    return home / "runs" / run_id


def unknown_run(run_id: str) -> NotFound:
    """The error for a run that is not in the store."""
    return NotFound(
        "UNKNOWN_RUN",
        "No run is stored yet." if run_id == "last" else f"No run has the id or the name {run_id[:80]!r}.",
        "aisp_job_list names the jobs; a run has the id of the job that made it, from its first verdict on.",
        [("aisp_job_list", {"tool": "aisp_run_benchmarks"})],
    )


def size_of(folder: Path) -> int:
    """Bytes of all files below, as allocated on the disk."""
    total = 0
    for where, _folders, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total
