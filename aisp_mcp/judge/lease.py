"""The lease of a device: who holds it measures, and everybody else only prepares.

A lease is a lock on a file, so the kernel returns it if its holder dies. Each window is written into a file beside it
when it has ended, from which anybody can check that no two of a device overlap.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO, Any


class Lease:
    """The lease of one device. folder: where its lock is; None, where nobody else measures, for a lease of nothing."""

    def __init__(self, folder: Path | None, device: str) -> None:
        self.folder, self.device = folder, device
        self._file: IO[str] | None = None
        self._began = self._waited = 0.0
        self._windows: list[tuple[float, float]] = []

    def take(self) -> None:
        """Wait for the device; nothing if it is held. Raises OSError."""
        if self.folder is None or self._file is not None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        asked = time.monotonic()
        # Kept open, not in a context: it is held until give().
        self._file = open(self.folder / f"{self.device}.lock", "a", encoding="utf-8")  # noqa: SIM115
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._began = time.monotonic()
        self._waited += self._began - asked

    def give(self) -> None:
        """Return the device, after its window has been written; nothing if it is not held."""
        if self.folder is None or self._file is None:
            return
        window = (self._began, time.monotonic())
        self._windows.append(window)
        line = json.dumps({"device": self.device, "worker": worker(), "began": window[0], "ended": window[1]}) + "\n"
        with open(self.folder / f"{self.device}.windows", "a", encoding="utf-8") as log:
            log.write(line)
        self._file.close()
        self._file = None

    def facts(self) -> dict[str, Any]:
        """What a verdict says of it: the worker, and the seconds of the machine's clock during which nobody else
        measured. Empty without a lease.
        """
        if self.folder is None:
            return {}
        windows = [[round(time_s, 6) for time_s in window] for window in self._windows]
        about = {"device": self.device, "worker": worker(), "windows": windows, "waited_s": round(self._waited, 3)}
        return {"lease": about}


def worker() -> str:
    """The machine and the process that judge."""
    return f"{os.uname().nodename}:{os.getpid()}"
