"""The rules of KernelBench-Hard's problem.yaml: a tolerance, and operators that solutions may not call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.suites.adapters import base


def read(file: Path) -> tuple[dict[str, float], tuple[str, ...]]:
    """Largest absolute and relative difference by dtype, and forbidden operators; empty if the file does not exist.

    Raises BenchmarkError UNREADABLE.
    """
    import yaml

    try:
        facts = yaml.safe_load(base.read_text(file)) if file.is_file() else {}
    except yaml.YAMLError as error:
        raise BenchmarkError("UNREADABLE", f"{file.name} is not YAML: {error}.") from error
    rules = facts if isinstance(facts, dict) else {}
    values = rules.get("tolerance") or {}
    tolerance = {str(key).removeprefix("torch."): float(value) for key, value in values.items() if _is_number(value)}
    return tolerance, tuple(map(str, rules.get("forbidden") or ()))


def _is_number(value: Any) -> bool:
    try:
        return float(value) >= 0
    except (TypeError, ValueError):
        return False
