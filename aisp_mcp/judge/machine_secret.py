"""The secret of this machine that determines the inputs which decide whether a program is correct.

The same file gets the same inputs in every comparison, and therefore the same result. Without the secret, nobody can
search for a program that is correct on these inputs only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from aisp_mcp.settings import Settings
from aisp_mcp.store.files import write_once

FILE, BYTES = "battery-secret", 32


def battery_seed(baseline: Path, size: str, device: str) -> int:
    """The seed for a specification at a size. It is the same for every candidate, so editing a comment does not redraw
    the inputs.
    """
    about = hashlib.sha256(baseline.read_bytes()).digest() + f"\0{size}\0{device}".encode()
    return int.from_bytes(hashlib.sha256(_secret(Settings.from_env().home) + about).digest()[:6])


def _secret(home: Path) -> bytes:
    """Read the secret, which is created at first use."""
    path = home / FILE
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            write_once(path, os.urandom(BYTES))
    return path.read_bytes()
