"""Commands that open raw reports in NVIDIA's own viewers."""

from __future__ import annotations

import shlex
from pathlib import Path

_VIEWERS = {".nsys-rep": "nsys-ui", ".ncu-rep": "ncu-ui"}


def commands(folder: Path, given: str | None = None) -> list[str]:
    """One shell command per report in the folder, or for the given report."""
    reports = [Path(given).expanduser()] if given else sorted(folder.glob("report.*"))
    return [f"{_VIEWERS[path.suffix]} {shlex.quote(str(path))}" for path in reports if path.suffix in _VIEWERS]
