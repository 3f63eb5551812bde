"""The worker's end of its pipe and control block."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from aisp_mcp.judge.protocol.layout import TEXT
from aisp_mcp.judge.protocol.module_loader import users_line
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, HANDED_OVER, ControlBlock


def read_exactly(fd: int, count: int) -> bytes:
    """Read exactly that many bytes; return none if the pipe ends earlier."""
    data = b""
    while len(data) < count:
        piece = os.read(fd, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def await_inputs(stats: Any, count: int) -> Iterator[int]:
    """Yield the number of each call once its inputs have arrived (see handoff_cpu.py)."""
    for call in range(count):
        stats[ANSWERED] = call + 1
        while stats[HANDED_OVER] <= call:
            pass
        yield call
    stats[ANSWERED] = count + 1


def write_error(control: ControlBlock) -> None:
    """Write the error where the parent can show it. It is evidence only, and not trusted."""
    kind, error, _ = sys.exc_info()
    line = users_line(error) if error else ""
    where = f" at {line}" if line else ""
    control.write_text(f"{kind.__name__ if kind else 'Error'}: {error}{where}"[: TEXT // 2])
