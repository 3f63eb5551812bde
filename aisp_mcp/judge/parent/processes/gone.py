"""The error for a worker that cannot run any more rounds."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.failed_builds import REASON
from aisp_mcp.judge.protocol.shared_memory import NO_DEVICE_MEMORY, UNDESCRIBED
from aisp_mcp.process import tree

ON_DEVICE = re.compile(
    f"OutOfMemoryError: CUDA out of memory|CUDA error 2: {NO_DEVICE_MEMORY}|{re.escape(UNDESCRIBED)}"
)
KILLED = re.compile(r"\bSIGKILL\b|\bKilled\b")  # a worker, or a compiler that it started
NOT_BUILT = re.compile(r"Error building extension '\w+'(?!:)")  # of torch, if the compiler's output was printed
PRINTED, SHOWN = 1 << 20, 200  # bytes of a worker's output that are read, characters of the reason
SMALLER_SIZE = "Choose a smaller size (--size NAME=VALUE), or end other programs."


def with_reason(text: str, folder: Path) -> str:
    """The text of an exception. If an extension was not built, it names the compiler's first error, from the output in
    the worker's folder, which may hold anything.
    """
    if failure := NOT_BUILT.search(text):
        with suppress(OSError), (folder / "output.log").open("rb") as output:
            if reason := REASON.search(output.read(PRINTED).decode(errors="replace")):
                return f"{text[: failure.end()]}: {reason[0].strip()[:SHOWN]}{text[failure.end() :]}"
    return text


class WorkerGone(Exception):
    """The worker cannot run any more rounds. code: raised, crashed, hang, unstoppable, forged, ran_outside, left_cores,
    unreadable, hides_memory or shares_input; text: from the worker, untrusted.
    """

    def __init__(self, code: str, message: str, text: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.text = code, message, text

    def reject_lack_of_memory(self, label: str, kills: int) -> None:
        """Raise BenchmarkError NO_MEMORY if memory ran out, some of which the comparison itself uses.

        label: of the program. kills: tree.oom_kills() before the worker started.
        """
        if self.code == "raised" and ON_DEVICE.search(self.text):
            message = f"The {label} ran out of device memory, some of which the comparison itself uses."
        elif KILLED.search(f"{self.message} {self.text}") and tree.oom_kills() > kills:
            message = f"Memory ran out, and the system ended the {label}: workers are the first to be ended."
        else:
            return
        raise BenchmarkError("NO_MEMORY", message, SMALLER_SIZE) from self
