"""Files in the folder of a run or job, read without ever leaving it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pydantic import Field

from aisp_mcp.errors import NotFound, Refused
from aisp_mcp.records import Record

MAX_FILES = 200
MAX_BYTES = 4 << 20
_OURS = ("heartbeat",)


class Artifact(Record):
    """One file of a job."""

    name: str = Field(description="Path below the folder of the job.")
    bytes: int


def list_artifacts(folder: Path) -> list[Artifact]:
    """Plain files below the folder, by name, at most 200; without links and hidden files."""
    artifacts = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(where, name)
            if name.startswith(".") or name in _OURS or path.is_symlink() or not path.is_file():
                continue
            artifacts.append(Artifact(name=path.relative_to(folder).as_posix(), bytes=path.stat().st_size))
    return sorted(artifacts, key=lambda file: file.name)[:MAX_FILES]


def read_artifact(folder: Path, name: str) -> bytes:
    """One file's content. Every step on the way is taken without following links.

    Raises NotFound NO_SUCH_ARTIFACT, also for names that would leave the folder, and Refused TOO_LARGE.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(part) > 255 for part in parts):
        raise _missing(name)
    here = None
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for index, part in enumerate(parts):
            kind = os.O_NONBLOCK if index == len(parts) - 1 else os.O_DIRECTORY
            deeper = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=here)
            os.close(here)
            here = deeper
        return _content(here, folder / name)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES):
            raise _missing(name) from None
        raise
    finally:
        if here is not None:
            os.close(here)


def _content(file: int, path: Path) -> bytes:
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        raise _missing(path.name)
    if about.st_size > MAX_BYTES:
        raise Refused(
            "TOO_LARGE",
            f"{path.name} has {about.st_size} bytes; at most {MAX_BYTES} are sent.",
            f"On this machine it is the file {path}.",
        )
    with os.fdopen(os.dup(file), "rb") as reader:
        return reader.read(MAX_BYTES)


def _missing(name: str) -> NotFound:
    return NotFound("NO_SUCH_ARTIFACT", f"The job has no file {name[:200]!r}.", "Its own resource lists its files.")
