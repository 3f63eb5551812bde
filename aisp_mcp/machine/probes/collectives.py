"""Collectives: by nccl-tests if it is installed, else by torch.distributed, with the same definition of bus
bandwidth.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.machine.probes import probe_runner
from aisp_mcp.machine.probes.probe_runner import rate
from aisp_mcp.machine.probes.records import Collective, Collectives
from aisp_mcp.system import topology
from aisp_mcp.system.redact import redact

_PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
}
_ROUNDS = 6
_NVLS = "Bus bandwidth may exceed the link rate where the switch reduces (NVLS)."
_GLOO = "gloo between CPU processes of this host: says nothing about a GPU fabric."


def run(names: list[str], low: int, high: int, ranks: int | None, timeout_s: float) -> Collectives:
    """Sizes in bytes from low to high. Raises Unavailable NEEDS_MULTI_GPU if more GPUs are requested than exist."""
    began = time.monotonic()
    gpus = probe_runner.gpus()[0] if probe_runner.on_gpu() else 0
    if gpus and ranks is not None and ranks > gpus:
        raise Unavailable(
            "NEEDS_MULTI_GPU", f"{ranks} GPUs were requested; this machine has {gpus}.", "Leave gpus out."
        )
    on_gpus = gpus > 1
    count = ranks or (gpus if on_gpus else 2)
    tests = on_gpus and all(shutil.which(_PROGRAMS[name]) for name in names)
    if tests:
        backend, rows = "nccl-tests", _nccl_tests(names, low, high, count, timeout_s)
    else:
        backend = "nccl" if on_gpus else "gloo"
        rows = _torch(backend, names, low, high, count, timeout_s)
    links = [gpu.nvlink_per_direction_bytes_s for gpu in topology.read().gpus] if on_gpus else []
    return Collectives(
        backend=backend,
        ranks=count,
        rows=rows,
        link_bytes_s=next((link for link in links if link), None),
        notes=_notes(on_gpus),
        seconds=round(time.monotonic() - began, 3),
    )


def _notes(on_gpus: bool) -> list[str]:
    """Notes for readers, and the NCCL settings of the environment, which affect rates."""
    if not on_gpus:
        return [_GLOO]
    settings = sorted(f"{name}={redact(value)}" for name, value in os.environ.items() if _is_setting(name))
    return [_NVLS, *([f"Set in the environment: {', '.join(settings)}."] if settings else [])]


def _is_setting(name: str) -> bool:
    """Return False for NCCL_VERSION, which the builder of an image recorded: it is not a setting."""
    return name.startswith("NCCL_") and name != "NCCL_VERSION"


def _torch(backend: str, names: list[str], low: int, high: int, count: int, timeout_s: float) -> list[Collective]:
    params = {
        "backend": backend,
        "collectives": names,
        "min_bytes": low,
        "max_bytes": max(low, high),
        "rounds": _ROUNDS,
        "iterations": 50,
    }
    reply = probe_runner.ask_ranks(params, count, timeout_s)
    return [Collective(name=r["collective"], bytes=r["bytes"], busbw=rate(r["busbw"])) for r in reply["rows"]]


def _nccl_tests(names: list[str], low: int, high: int, count: int, timeout_s: float) -> list[Collective]:
    samples: dict[tuple[str, int], list[float]] = {}
    for name in names:
        for _ in range(3):
            for size, busbw in _once(name, low, high, count, timeout_s / (3 * len(names))):
                samples.setdefault((name, size), []).append(busbw)
    return [Collective(name=name, bytes=size, busbw=rate(values)) for (name, size), values in samples.items()]


def _once(name: str, low: int, high: int, count: int, timeout_s: float) -> list[tuple[int, float]]:
    from aisp_mcp.process.run import run as execute

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        argv = [_PROGRAMS[name], "-b", str(low), "-e", str(high), "-f", "4", "-g", str(count), "-J", str(out)]
        done = execute(argv, timeout_s=timeout_s, check=True)
        try:
            return parse_nccl_tests(json.loads(out.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            output = done.stderr.strip()[-200:]
            raise ProcessError("CRASHED", f"{argv[0]} wrote no readable JSON: {error} {output}") from error


def parse_nccl_tests(document: dict[str, Any]) -> list[tuple[int, float]]:
    """(size in bytes, out-of-place bus bandwidth in bytes/s) per row of nccl-tests' -J file, which gives GB/s."""
    return [(int(row["size"]), float(row["out_of_place"]["bus_bw"]) * 1e9) for row in document["results"]]
