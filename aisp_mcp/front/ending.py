"""End of a server: at once, with everything written, its helpers ended and its jobs left alone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

import anyio

from aisp_mcp.jobs import tracing
from aisp_mcp.jobs.executors.local import MARK
from aisp_mcp.process import tree

PARENT_LOOK_S = 1.0


def leave(code: int) -> NoReturn:
    """End this process now. A tool busy in a thread is not waited for, nor are the programs it started."""
    tracing.stop()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    end_helpers()
    os._exit(code)


def end_helpers() -> None:
    """Kill every program that tools of this process are running. Jobs are no helpers: they carry their mark."""
    for child in tree.children(os.getpid()):
        if not _is_job(child):
            tree.kill([*reversed(tree.descendants(child)), child])


def _is_job(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(f"{MARK}=".encode()) for entry in file.read().split(b"\0"))
    except OSError:
        return False


async def parent_gone() -> None:
    """Return when the process that started this one is no more: its pipes may be held open by others."""
    first = os.getppid()
    while os.getppid() == first:
        await anyio.sleep(PARENT_LOOK_S)
