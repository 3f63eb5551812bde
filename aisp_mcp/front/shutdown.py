"""Shut a server down at once: flush its output, kill its helper processes, leave its jobs running."""

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


def exit_now(code: int) -> NoReturn:
    """Exit without waiting for tools that are busy in threads or for the programs they started."""
    tracing.stop()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    kill_helpers()
    os._exit(code)


def kill_helpers() -> None:
    """Kill every program that tools of this process started, except jobs, which are marked in their environment."""
    for child in tree.children(os.getpid()):
        if not _is_job(child):
            tree.kill([*reversed(tree.descendants(child)), child])


def _is_job(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(f"{MARK}=".encode()) for entry in file.read().split(b"\0"))
    except OSError:
        return False


async def wait_for_parent_exit() -> None:
    """Return once the parent process has exited; other processes may keep its pipes open."""
    parent = os.getppid()
    while os.getppid() == parent:
        await anyio.sleep(PARENT_LOOK_S)
