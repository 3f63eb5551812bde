"""The worker's end of its pipe and control block."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol.layout import TEXT
from aisp_mcp.judge.protocol.module_loader import BASELINE, CANDIDATE, COMMON
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, HANDED_OVER, ControlBlock

OWN = (BASELINE, CANDIDATE, COMMON)


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
    control.write_text(f"{kind.__name__ if kind else 'Error'}: {error}{_where(error)}"[: TEXT // 2])


def _where(error: BaseException | None) -> str:
    """The innermost line of the pair's own files in the traceback; empty if the harness itself raised the error."""
    lines = traceback.walk_tb(error.__traceback__ if error else None)
    own = [(frame.f_code.co_filename, line) for frame, line in lines if frame.f_globals.get("__name__") in OWN]
    return f" at {Path(own[-1][0]).name}:{own[-1][1]}" if own else ""
