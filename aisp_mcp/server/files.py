"""Allowed locations of an export, and the files written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.errors import Refused, UsageError
from aisp_mcp.records import Record


class Written(Record):
    """A file on disk."""

    path: str
    bytes: int
    sha256: str


def require_inside(path: Path, allowed: Sequence[Path], hint: str) -> Path:
    """The path with links followed. Raises Refused OUTSIDE_ROOTS unless it is in an allowed folder."""
    path = path.expanduser().resolve()
    if any(path.is_relative_to(folder.resolve()) for folder in allowed):
        return path
    raise Refused("OUTSIDE_ROOTS", f"{path} is outside every folder opened for writing.", hint)


def destination(given: str | None, default: Path, allowed: Sequence[Path]) -> Path:
    """The file to write: `default`, or `given` (a file, or an existing folder) if it is in an allowed folder.

    Links are followed before the test. Raises Refused OUTSIDE_ROOTS, UsageError NO_FOLDER.
    """
    if given is None:
        return default
    hint = "Leave the path out to write into the run's folder, or start with --allow-write DIR."
    path = require_inside(Path(given), allowed, hint)
    if path.is_dir():
        path = path / default.name
    if not path.parent.is_dir():
        raise UsageError("NO_FOLDER", f"The folder {path.parent} does not exist.", "Create it first, or omit the path.")
    return path


def folder(given: str | None, default: Path, allowed: Sequence[Path]) -> Path:
    """The folder to write into: `default`, or `given` if it is inside an allowed folder. Raises Refused
    OUTSIDE_ROOTS.
    """
    path = default if given is None else Path(given).expanduser().resolve()
    hint = "Leave the folder out to write into the run's own, or start with --allow-write DIR."
    return path if path == default else require_inside(path, allowed, hint)


def write(path: Path, data: bytes) -> Written:
    """Write the file atomically: a reader sees the old file or the new one."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise Refused("UNWRITABLE", f"Cannot write {path}: {error.strerror}.", "Choose another folder.") from error
    return Written(path=str(path), bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
