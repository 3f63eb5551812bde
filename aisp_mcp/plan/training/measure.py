"""Compare predicted with measured steps of a synthetic transformer on this machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.machine.probes import child_process, probe_runner
from aisp_mcp.plan import lookup
from aisp_mcp.plan.records.architecture import Architecture, Attention, Mlp
from aisp_mcp.plan.training import memory, step
from aisp_mcp.plan.training.layout import Layout
from aisp_mcp.records import Record

STEPS = 3


class Beside(Record):
    """ratio: measured over predicted. None where nothing was predicted, and the notes say why."""

    predicted: float | None
    measured: float
    ratio: float | None
    unit: str


class Measured(Record):
    """Peak memory and time per step of one synthetic transformer."""

    device: str
    parameters: int
    peak: Beside
    step: Beside
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
        source="probes/transformer.py",
    )


def predict(params: dict[str, Any], workspace: int) -> memory.TrainingMemory:
    """Memory of one step of that transformer on one device."""
    layout = Layout(microbatch=params["batch"], checkpoint=params["checkpoint"])
    return memory.training(described(params), layout, memory.RECIPES[params["dtype"]], params["seq"], workspace)


def run(params: dict[str, Any], timeout_s: float) -> Measured:
    """Train for three steps in a process of its own. Errors as launch_child.ask."""
    device = probe_runner.choose()
    facts = device.facts
    calibration = lookup.calibration(facts) if facts else None
    said = child_process.ask("transformer", {"device": device.torch, "steps": STEPS, **params}, timeout_s)
    expected = predict(params, calibration.workspace_bytes if calibration else 0)
    seconds = None
    if facts is not None and calibration is not None:
        layout = Layout(microbatch=params["batch"], checkpoint=params["checkpoint"])
        rate = facts.memory.bandwidth_bytes_s
        fabric = step.Fabric(link=rate, network=rate, per_node=1)  # one device: no link is used
        recipe = memory.RECIPES[params["dtype"]]
        seconds = step.time(described(params), layout, recipe, params["seq"], facts, calibration, fabric).total_s
    return Measured(
        device=device.name,
        parameters=said["parameters"],
        peak=_beside(float(expected.peak_bytes), float(said["peak_bytes"]), "bytes"),
        step=_beside(seconds, min(said["seconds"]), "s"),
        moment=expected.moment,
        torch=said["torch"],
        notes=[] if seconds else ["No time is predicted: no calibration for this device."],
    )


def _beside(predicted: float | None, measured: float, unit: str) -> Beside:
    ratio = round(measured / predicted, 4) if predicted else None
    return Beside(predicted=predicted, measured=measured, ratio=ratio, unit=unit)
