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

FILE, BYTES = "battery-secret", 32


def battery_seed(baseline: Path, size: str, device: str) -> int:
    """The seed for a specification at a size. It is the same for every candidate, so editing a comment does not redraw
    the inputs.
    """
    about = hashlib.sha256(baseline.read_bytes()).digest() + f"\0{size}\0{device}".encode()
    return int.from_bytes(hashlib.sha256(_secret(Settings.from_env().home) + about).digest()[:6])


def _secret(home: Path) -> bytes:
    """Read the secret. At first use, create it in another file and link it, so that no reader sees part of it."""
    path = home / FILE
    if not path.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f".{FILE}.{os.getpid()}")
        fd = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        try:
            os.write(fd, os.urandom(BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        finally:
            os.close(fd)
            partial.unlink()
    return path.read_bytes()
