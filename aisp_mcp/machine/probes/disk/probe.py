"""The disk probe: four patterns, interleaved over rounds, by fio or by system calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from aisp_mcp.errors import Unavailable
from aisp_mcp.machine.probes.disk import fio, system_calls
from aisp_mcp.machine.probes.rates import rate
from aisp_mcp.machine.probes.records import Placed, Probe
from aisp_mcp.system import disk as disks

ROUNDS = 6
Engine = Literal["auto", "fio", "builtin"]
_UNCACHED = (
    "O_DIRECT passes by this kernel's cache; a hypervisor's, a controller's or a server's cache may still answer."
)
_IN_MEMORY = "This file system is in memory: there is no disk under it, so no rate is called uncached."
_NO_DIRECT = "This file system has no O_DIRECT (tmpfs and some overlays): nothing uncached could be measured."


def probe(
    folder: Path, size: int, block: int, engine: Engine, budget_s: float, progress: Callable[[float, str], None]
) -> Probe:
    """Rates in bytes/s; sizes in bytes. Six rounds unless the budget ends them earlier (at least one).

    Raises Unavailable NO_FOLDER, DISK_FULL, NOT_INSTALLED; ProcessError from fio.
    """
    system_calls.check_space(folder, size)
    began = time.monotonic()
    mounted = next(iter(disks.read([folder.absolute()])), None)
    in_memory = mounted is not None and mounted.kind == "memory"
    with system_calls.scratch(folder) as path, system_calls.Buffer(block) as buffer:
        runner = _runner(engine, path, size, buffer, budget_s)
        system_calls.Builtin(path, size, buffer).measure(
            "write_synced"
        )  # the file's blocks are allocated before anything counts
        samples = _rounds(runner, _patterns(in_memory), began + budget_s, progress)
    uncached = bool(samples.get("read_direct"))
    return Probe(
        device=f"{folder} ({mounted.filesystem}, {mounted.kind})" if mounted else str(folder),
        device_id=(mounted.device if mounted else None) or "disk",
        results=[Placed(name=name, unit="B/s", rate=rate(values)) for name, values in samples.items() if values],
        notes=[_IN_MEMORY if in_memory else _UNCACHED if uncached else _NO_DIRECT],
        conditions={"engine": runner.name, "size_bytes": runner.size, "block_bytes": block, "queue_depth": 1},
        seconds=round(time.monotonic() - began, 3),
    )


def _runner(
    engine: Engine, path: Path, size: int, buffer: system_calls.Buffer, budget_s: float
) -> system_calls.Builtin | fio.Fio:
    program = fio.find() if engine != "builtin" else None
    if program is not None:
        return fio.Fio(program, path, size, buffer, timeout_s=budget_s)
    if engine == "fio":
        raise Unavailable("NOT_INSTALLED", "fio was not found on PATH.", "sudo apt-get install fio, or engine=builtin")
    return system_calls.Builtin(path, size, buffer)


def _patterns(in_memory: bool) -> tuple[str, ...]:
    """The patterns to measure; none with O_DIRECT in memory: recent kernels accept it on tmpfs, where it
    means nothing.
    """
    return tuple(name for name in system_calls.PATTERNS if not (in_memory and name.endswith("_direct")))


def _rounds(
    runner: system_calls.Builtin | fio.Fio,
    patterns: tuple[str, ...],
    deadline: float,
    progress: Callable[[float, str], None],
) -> dict[str, list[float]]:
    """Samples per pattern; the order is reversed every other round so that drift affects all patterns equally."""
    samples: dict[str, list[float]] = {name: [] for name in patterns}
    for number in range(ROUNDS):
        order = patterns if number % 2 == 0 else patterns[::-1]
        for name in order:
            value = runner.measure(name)
            if value is not None:
                samples[name].append(value)
        progress((number + 1) / ROUNDS, f"round {number + 1} of {ROUNDS}")
        if time.monotonic() > deadline:
            break
    return samples
