"""Compare predicted with measured steps of a synthetic transformer on this machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.machine.probes import probe_runner
from aisp_mcp.plan.architecture import Architecture, Attention, Mlp
from aisp_mcp.plan.training import calibration, memory, step
from aisp_mcp.plan.training.layout import Layout, Recompute
from aisp_mcp.records import Record

STEPS = 3


class Ratio(Record):
    """ratio: measured over predicted. None if nothing was predicted; the notes give the reason."""

    predicted: float | None
    measured: float
    ratio: float | None
    unit: str


class Measured(Record):
    """Peak memory and time per step of one synthetic transformer."""

    device: str
    parameters: int
    peak: Ratio
    step: Ratio
    moment: str
    torch: str
    notes: list[str] = Field(default_factory=list)


def described(params: dict[str, Any]) -> Architecture:
    """The synthetic transformer as an architecture."""
    return Architecture(
        name="synthetic",
        layers=params["layers"],
        hidden=params["hidden"],
        vocab=params["vocab"],
        attention=Attention(
            heads=params["heads"],
            kv_heads=params["kv_heads"],
            head_dim=params["head_dim"],
            layers=params["layers"],
        ),
        mlp=Mlp(width=params["ffn"]),
        source="machine/probes/children/transformer.py",
    )


def predict(params: dict[str, Any], workspace: int) -> memory.TrainingMemory:
    """Memory of one step of that transformer on one device."""
    layout = Layout(microbatch=params["batch"], recompute=_recompute(params))
    return memory.training(described(params), layout, memory.RECIPES[params["dtype"]], params["seq"], workspace)


def predict_step(params: dict[str, Any], facts: GpuFacts) -> float:
    """Seconds of one step of that transformer on one GPU."""
    shares, layout = (
        calibration.shares(calibration.SYNTHETIC),
        Layout(microbatch=params["batch"], recompute=_recompute(params)),
    )
    fabric = step.fabric(facts, shares, 1)  # one device: no link is used
    job = step.StepJob(described(params), memory.RECIPES[params["dtype"]], params["seq"], facts, shares, fabric)
    return step.time(job, layout).total_s


def _recompute(params: dict[str, Any]) -> Recompute:
    return "full" if params["checkpoint"] else "none"


def run(params: dict[str, Any], timeout_s: float) -> Measured:
    """Train for three steps in a separate process. Errors as launch_child.ask."""
    device = probe_runner.choose()
    facts = device.facts
    answer = probe_runner.ask("transformer", {"device": device.torch, "steps": STEPS, **params}, timeout_s)
    workspace = calibration.shares(calibration.SYNTHETIC).workspace_bytes if facts else 0
    expected = predict(params, workspace)
    seconds = None
    if (
        facts is not None
        and calibration.band(facts, memory.RECIPES[params["dtype"]].compute, calibration.SYNTHETIC) is not None
    ):
        seconds = predict_step(params, facts)
    return Measured(
        device=device.name,
        parameters=answer["parameters"],
        peak=_ratio(float(expected.peak_bytes), float(answer["peak_bytes"]), "bytes"),
        step=_ratio(seconds, min(answer["seconds"]), "s"),
        moment=expected.moment,
        torch=answer["torch"],
        notes=[] if seconds else ["No time is predicted: no calibration for this device."],
    )


def _ratio(predicted: float | None, measured: float, unit: str) -> Ratio:
    ratio = round(measured / predicted, 4) if predicted else None
    return Ratio(predicted=predicted, measured=measured, ratio=ratio, unit=unit)
