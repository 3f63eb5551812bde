"""A job's output on disk: bounded, in two generations; writing it never blocks the job."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NAME, OLDER = "log.txt", "log.1.txt"


class JobLog:
    """Accepts bytes; log.txt moves to log.1.txt whenever it is full. A full disk loses output, not the job."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.path = folder / NAME
        self.older = folder / OLDER
        self.limit = limit
        self.size = 0
        self._fd: int | None = None

    def write(self, data: bytes) -> None:
        """Append, limited to the last `limit` bytes of one call."""
        data = data[-self.limit :]
        with contextlib.suppress(OSError):
            if self._fd is not None and self.size + len(data) > self.limit:
                self.close()
                os.replace(self.path, self.older)
            if self._fd is None:
                self._fd = os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                self.size = 0
            self.size += os.write(self._fd, data)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def tail(folder: Path, limit: int) -> str:
    """The last `limit` logged bytes as text; empty if there are none."""
    parts: list[bytes] = []
    room = limit
    for name in (NAME, OLDER):
        with contextlib.suppress(OSError), open(folder / name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - room))
            parts.insert(0, file.read(room))
            room -= len(parts[0])
        if room <= 0:
            break
    return b"".join(parts).decode("utf-8", "replace")
