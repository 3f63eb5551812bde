"""Reports in NVIDIA's own formats, converted by NVIDIA's own programs: .nsys-rep by nsys, .ncu-rep by ncu or its
module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from aisp_mcp.errors import Unavailable
from aisp_mcp.profile.readers.files import MAX_FILE, look
from aisp_mcp.profile.recording import record
from aisp_mcp.profile.records import Profile

Find = Callable[[str], str]  # from a program's name to its path; raises Unavailable NOT_INSTALLED


def is_nsys(path: str) -> bool:
    return path.endswith((".nsys-rep", ".qdrep"))


def is_ncu(path: str) -> bool:
    return path.endswith(".ncu-rep")


def database(path: str, folder: Path, find: Find) -> Path:
    """The scrubbed SQLite export of a .nsys-rep, made once per content. Raises Unavailable, ProcessError, NotFound."""
    report = look(path, MAX_FILE)
    cached = folder / f"{report.sha256}.sqlite"
    if not cached.exists():
        program = find("nsys")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            record.export_nsys(program, report.path, Path(scratch)).replace(cached)
    return cached


def kernels(path: str, find: Find) -> Profile:
    """The launches of a .ncu-rep. Raises Unavailable, ProcessError, NotFound."""
    report = look(path, MAX_FILE)
    try:
        program: str | None = find("ncu")
    except Unavailable:
        program = None
    with tempfile.TemporaryDirectory() as scratch:
        pages = record.read_ncu(program, report.path, Path(scratch))
    version = pages.source.version
    return pages.model_copy(update={"source": report.source("ncu", "Nsight Compute", version)})
