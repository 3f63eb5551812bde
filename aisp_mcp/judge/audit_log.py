"""An append-only log of raw records. Each contains the hash of its predecessor, so a changed record is detected."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START = "0" * 64


class ChainLog:
    """One JSON record per line. head is the hash of the last record; it goes into the result."""

    def __init__(self, path: Path, head: str = START) -> None:
        """Start a log, or continue the one that ends in `head`."""
        self.path = path
        self.head = head
        self._file = path.open("w" if head == START else "a", encoding="utf-8")

    def append(self, kind: str, **record: Any) -> None:
        """Write one record and move the head."""
        line = json.dumps({"kind": kind, "prev": self.head, **record}, separators=(",", ":"), default=str)
        self.head = hashlib.sha256(line.encode()).hexdigest()
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@contextmanager
def continued(path: Path) -> Iterator[tuple[ChainLog, list[dict[str, Any]]]]:
    """Lock a log that several processes share, and return it with its records so far.

    Raises ValueError as check_chain, FileNotFoundError.
    """
    with path.open("r+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        log = ChainLog(path, check_chain(path))
        try:
            yield log, [json.loads(line) for line in lock]
        finally:
            log.close()


def check_chain(path: Path) -> str:
    """The head of a stored log. Raises ValueError naming the first line that does not match its predecessor."""
    return check_text(path.read_text(encoding="utf-8"), path.name)


def check_text(text: str, name: str) -> str:
    """The same for the content of a log."""
    head = START
    for number, line in enumerate(text.splitlines(), 1):
        if json.loads(line).get("prev") != head:
            raise ValueError(f"{name}:{number} does not follow from the previous line")
        head = hashlib.sha256(line.encode()).hexdigest()
    return head
