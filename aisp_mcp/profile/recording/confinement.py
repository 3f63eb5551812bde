"""The environment of a profiled program: ordinary, or isolated like a measured candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.process import isolation
from aisp_mcp.process.isolation import Level
from aisp_mcp.process.run import Completed, run


@dataclass(frozen=True)
class Confinement:
    """level L0: no isolation. env: its whole environment, None for our own. folder: the only one it may write to, from
    L2 on.

    The profiler runs inside with the program: it must follow it and communicate with it, over loopback if necessary.
    """

    level: Level = "L0"
    env: Mapping[str, str] | None = None
    folder: Path | None = None
    devices: bool = False

    def start(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """Run argv there to its end. Raises ProcessError NOT_STARTED."""
        writable = [self.folder] if self.folder else []
        wrapped = isolation.wrap(argv, self.level, writable=writable, loopback=True, devices=self.devices)
        return run(wrapped, timeout_s=timeout_s, env=self.env, cwd=self.folder)


OPEN = Confinement()
