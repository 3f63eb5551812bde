"""Energy readings: measure them with the device's counter, and store them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.machine.probes import probe_runner
from aisp_mcp.profile.recording import target_program
from aisp_mcp.runs import stored
from aisp_mcp.runs.analysis.variants import BASELINE
from aisp_mcp.runs.energy.figures import Reading, Window, reading
from aisp_mcp.server.context import Context
from aisp_mcp.suites import selection
from aisp_mcp.suites.discovery import Roots
from aisp_mcp.system.gpu import nvml


def require_counter() -> None:
    """Raise Unavailable NO_GPU, TORCH_WITHOUT_CUDA or NO_ENERGY_COUNTER if energy cannot be measured."""
    probe_runner.require_gpu()
    reading = nvml.read()
    if all(gpu.power.energy_j is None for gpu in reading.gpus):
        raise Unavailable(
            "NO_ENERGY_COUNTER",
            "No GPU here has an energy counter (NVML total energy; Volta or newer).",
            "There is no figure without a counter: power samples are averages that miss short kernels.",
            [("aisp_gpu_power", {})],
        )


def measure(ctx: Context, target: str, roots: Roots, folder: Path, timeout_s: float) -> list[Reading]:
    """Both programs of every pair that the name selects, measured and stored. Raises as profiled.find."""
    pairs, broken = selection.pairs(roots, [target])
    if not pairs:
        raise selection.unusable(broken[0])
    programs = {f"{pair.target} {BASELINE}": (pair.target, target_program.subject(pair, "baseline")) for pair in pairs}
    programs |= {pair.label: (pair.target, target_program.subject(pair, "candidate")) for pair in pairs}
    rows = []
    for at, (name, (of, subject)) in enumerate(programs.items()):
        ctx.progress(at, len(programs), name)
        run_folder = folder / f"energy-{at}"
        run_folder.mkdir(parents=True, exist_ok=True)
        rows.append(_store(ctx, name, of, target_program.energy(subject, run_folder, timeout_s / len(programs))))
    return rows


def _store(ctx: Context, name: str, target: str, answer: dict[str, Any]) -> Reading:
    windows = [Window.model_validate(row) for row in answer["windows"]]
    flops, moved = answer["work"]
    row = reading(name, target, str(answer["device"]), windows, float(answer["idle_w"]), (flops, moved))
    body = row.model_dump(mode="json", exclude={"measured_at"})
    ctx.store.put_measurement(f"{stored.ENERGY}{name}", str(answer["uuid"]), row.per_call_j.value, "J", body)
    return row
