"""Commands that start a module of this package in a child, untouched by the working folder.

`python -m` and `python -c` put the working folder first on the module search path, and an empty entry of PYTHONPATH
means the same: a `random.py` or `selectors.py` there would run instead of the library's, with all rights of
the user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

import aisp_mcp

SAFE = {"PYTHONSAFEPATH": "1"}  # the same for processes that our child starts


def module(name: str, *args: str, python: str = sys.executable) -> list[str]:
    """The command `python -P -m NAME ARGS`."""
    return [python, "-P", "-m", name, *args]


def search_path(environ: Mapping[str, str], cwd: str) -> dict[str, str]:
    """PYTHONPATH as a variable whose entries mean the same in every folder; empty entries are left out."""
    entries = [os.path.join(cwd, entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {"PYTHONPATH": os.pathsep.join(entries)}


def code_state() -> list[int]:
    """Number of this package's files, and their newest time: changes whenever its code does."""
    times = list(_times(os.path.dirname(aisp_mcp.__file__)))
    return [len(times), max(times)]


def _times(folder: str) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _times(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.stat().st_mtime_ns
