"""Folder of the recorded data, and the records that several tests make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts

DATA = Path(__file__).resolve().parents[2] / "results"


def recorded(name: str) -> dict[str, Any]:
    """One recorded document."""
    answer: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return answer


def facts(name: str) -> GpuFacts:
    """Facts of a listed GPU."""
    gpu_facts = load.gpu(name)
    assert gpu_facts is not None, name
    return gpu_facts
