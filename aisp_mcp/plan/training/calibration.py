"""Stacks of training, their shares and bands: the only source for every predicted step."""

from __future__ import annotations

from functools import cache

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Band, Ratio, Source, Stack, TrainingBand, TrainingCalibration, TrainingShares

SYNTHETIC = "synthetic"  # the transformer of this package's own measurements; no plan is made for it
TUNED = "megatron"


@cache
def stack(name: str = TUNED) -> Stack:
    rows = TrainingCalibration.model_validate(tables.plan_document("training.yaml")).stacks
    return next(row for row in rows if row.name == name)


def shares(name: str = TUNED) -> TrainingShares:
    """The fitted shares of a stack."""
    return stack(name).shares


def memory_ratio(name: str = TUNED, split: bool = False) -> Ratio:
    """Measured over predicted peak memory. split: with tensor or pipeline parallelism."""
    row = stack(name)
    return row.split_memory if split and row.split_memory else row.memory


def sources(name: str = TUNED) -> list[Source]:
    """Sources of a stack's shares."""
    return stack(name).sources


def band(facts: GpuFacts, dtype: str, name: str = TUNED) -> TrainingBand | None:
    """The band for a GPU's architecture and a product's type; None: times are not predicted."""
    for row in stack(name).steps:
        if facts.architecture in row.architectures and dtype in row.dtypes and dtype in facts.peak:
            return row
    return None


def around(ratio: Ratio, value: float, unit: str) -> Band:
    """The p10-p90 range around a predicted value."""
    return Band(p10=value * ratio.p10, p90=value * ratio.p90, unit=unit, basis=ratio.basis)


def absent(facts: GpuFacts, dtype: str, name: str = TUNED) -> str:
    """Reason why a plan has no times."""
    known = "; ".join(f"{', '.join(row.architectures)} in {', '.join(row.dtypes)}" for row in stack(name).steps)
    return f"Times: {facts.architecture} in {dtype} has no calibration with {name}. Calibrated: {known}."
