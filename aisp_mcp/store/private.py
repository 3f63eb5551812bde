"""The folder of the store belongs to one user: mode 0700, its database 0600, regardless of which process made it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from aisp_mcp.errors import StoreError

DATABASE = "aisp.db"


def make_private(home: Path) -> Path:
    """Create the folder and the database file, or remove other users' permissions. Returns the database's path.

    Raises StoreError STORE_UNSAFE if it belongs to another user or contains other things that others may see, and
    STORE_UNWRITABLE if it cannot be a folder; OSError on a full disk.
    """
    path = home / DATABASE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _own(home, 0o700)
        with contextlib.suppress(FileExistsError):
            os.mknod(path, 0o600 | stat.S_IFREG)  # created without opening it: closing a file releases SQLite's locks
        for name in (path, *(path.with_name(DATABASE + end) for end in ("-wal", "-shm"))):
            with contextlib.suppress(FileNotFoundError):
                _own(name, 0o600)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise unwritable(home, error) from error
    return path


def _own(path: Path, mode: int) -> None:
    """Make this file or folder private to this user. Raises StoreError STORE_UNSAFE, OSError."""
    about = path.stat()
    if about.st_uid != os.geteuid():
        raise StoreError(
            "STORE_UNSAFE",
            f"{path} belongs to user {about.st_uid}, and this is user {os.geteuid()}: its jobs would run as you.",
            f"Set AISP_HOME to a folder of your own, or give this one to you: chown -R {os.geteuid()} {path}",
        )
    if not about.st_mode & 0o077:
        return
    if path.is_dir() and _is_shared(path, about):
        raise StoreError(
            "STORE_UNSAFE",
            f"{path} is open to other users (mode {stat.S_IMODE(about.st_mode):04o}) and contains other files.",
            "Set AISP_HOME to a separate folder; it is created if it does not exist.",
        )
    path.chmod(mode)


def _is_shared(folder: Path, about: os.stat_result) -> bool:
    """Detect folders that serve other purposes, such as /tmp or a home folder: their mode is not ours to change."""
    with os.scandir(folder) as entries:
        return bool(about.st_mode & stat.S_ISVTX) or (
            any(True for _ in entries) and not (folder / DATABASE).exists() and not (folder / "runs").is_dir()
        )


def unwritable(home: Path, error: OSError) -> StoreError:
    """The error for an unusable home, with texts for the most common causes."""
    what = f"Cannot use {home} as AISP_HOME: {error.strerror or error}."
    if isinstance(error, FileExistsError) and home.is_symlink():
        what = f"AISP_HOME {home} is a link to {os.readlink(home)}, which is not a folder."
    elif isinstance(error, FileExistsError | NotADirectoryError) and home.is_file():
        what = f"AISP_HOME {home} is a file, not a folder."
    return StoreError(
        "STORE_UNWRITABLE", what, "Set AISP_HOME to a folder you may write to; it is created if it does not exist."
    )
