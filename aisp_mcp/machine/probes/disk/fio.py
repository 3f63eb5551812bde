"""The same four patterns through fio, read from its JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from aisp_mcp.errors import ProcessError
from aisp_mcp.machine.probes.disk.system_calls import Buffer, drop_cached

_FLAGS = {
    "write_direct": ["--rw=write", "--direct=1"],
    "write_synced": ["--rw=write", "--direct=0", "--end_fsync=1"],
    "read_direct": ["--rw=read", "--direct=1"],
    "read_cached": ["--rw=read", "--direct=0"],
}
_COARSE_MS = 500


def find() -> str | None:
    """fio on PATH, or None."""
    return shutil.which("fio")


class Fio:
    """One fio call per pass: psync, one job, queue depth 1. Rates in bytes/s."""

    name = "fio"

    def __init__(self, program: str, path: Path, size: int, buffer: Buffer, timeout_s: float) -> None:
        """size in bytes; the buffer's size is the block of one call, and fio uses the buffer's own pages."""
        self.path, self.size, self.block = path, size - size % buffer.size, buffer.size
        self._program, self._buffer, self._timeout_s = program, buffer, timeout_s

    def measure(self, pattern: str) -> float | None:
        """Bytes/s of one pass; None where the file system has no O_DIRECT. Raises ProcessError."""
        if pattern == "read_cached":
            self._warm()
        else:
            drop_cached(self.path)
        document = self._run(pattern)
        job = document["jobs"][0]
        if job["error"]:
            if pattern.endswith("_direct") and job["error"] == 22:
                return None
            raise ProcessError("CRASHED", f"fio reported error {job['error']} for {pattern}.")
        return bytes_per_second(job["read" if "read" in pattern else "write"], synced=pattern == "write_synced")

    def _run(self, pattern: str) -> dict[str, Any]:
        from aisp_mcp.process.run import run

        done = run(self.argv(pattern), timeout_s=self._timeout_s, cwd=self.path.parent)
        start = done.stdout.find("{")
        if done.timed_out or start < 0:
            why = "took too long" if done.timed_out else (done.stderr.strip() or done.stdout.strip())[-300:]
            raise ProcessError("TIMEOUT" if done.timed_out else "CRASHED", f"fio {pattern}: {why}")
        report: dict[str, Any] = json.loads(done.stdout[start:])
        return report

    def argv(self, pattern: str) -> list[str]:
        """The command of one pass."""
        return [
            self._program,
            f"--name={pattern}",
            # fio splits file names at colons
            f"--filename={str(self.path).replace(':', chr(92) + ':')}",
            f"--bs={self.block}",
            f"--size={self.size}",
            "--ioengine=psync",
            "--numjobs=1",
            f"--iomem=mmapshared:{self._buffer.path}",
            "--scramble_buffers=0",  # random once, as the built-in engine; changing every block costs CPU time
            "--invalidate=0",  # fio would count dropping cached pages as run time, so they are dropped before
            "--output-format=json",
            *_FLAGS[pattern],
        ]

    def _warm(self) -> None:
        with open(self.path, "rb", buffering=0) as file:
            while file.read(self.block):
                pass


def bytes_per_second(direction: dict[str, Any], synced: bool) -> float:
    """fio's own bandwidth or, if its millisecond clock is too coarse, bytes over the summed latencies (queue depth 1).

    A synced write uses fio's runtime, because the final fsync is in no request's latency.
    """
    if direction["runtime"] >= _COARSE_MS or synced:
        return float(direction["bw_bytes"])
    spent_s = direction["lat_ns"]["mean"] * direction["lat_ns"]["N"] / 1e9
    return float(direction["io_bytes"] / spent_s)
