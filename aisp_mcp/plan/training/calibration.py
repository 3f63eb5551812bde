"""Shares and bands of training steps: the only source for every predicted step."""

from __future__ import annotations

from functools import cache

from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Band, Ratio, Source, TrainingBand, TrainingCalibration, TrainingShares


@cache
def _read() -> TrainingCalibration:
    return TrainingCalibration.model_validate(tables.plan_document("training.yaml"))


def shares() -> TrainingShares:
    """The fitted shares."""
    return _read().shares


def memory_ratio() -> Ratio:
    """Measured over predicted peak memory."""
    return _read().memory


def sources() -> list[Source]:
    """Sources of the shares."""
    return _read().sources


def band(facts: GpuFacts, dtype: str) -> TrainingBand | None:
    """The band for a GPU's architecture and a product's type; None: times are not predicted."""
    for row in _read().steps:
        if facts.architecture in row.architectures and dtype in row.dtypes and dtype in facts.peak:
            return row
    return None


def around(ratio: Ratio, value: float, unit: str) -> Band:
    """The p10-p90 range around a predicted value."""
    return Band(p10=value * ratio.p10, p90=value * ratio.p90, unit=unit, basis=ratio.basis)


def absent(facts: GpuFacts, dtype: str) -> str:
    """Reason why a plan has no times."""
    known = "; ".join(f"{', '.join(row.architectures)} in {', '.join(row.dtypes)}" for row in _read().steps)
    return f"Times: {facts.architecture} in {dtype} has no calibration. Calibrated: {known}."
