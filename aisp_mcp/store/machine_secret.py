"""The secret of this machine from which the judge draws the inputs that decide whether a program is correct."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aisp_mcp.store.files import write_once

FILE, BYTES = "battery-secret", 32


def read(home: Path) -> bytes:
    """The secret below that home folder; created at first use."""
    path = home / FILE
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            write_once(path, os.urandom(BYTES))
    return path.read_bytes()
