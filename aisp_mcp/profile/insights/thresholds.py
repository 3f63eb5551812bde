"""The thresholds of verdicts: data, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def table(section: str) -> dict[str, Any]:
    """One section of knowledge/metrics.yaml: metrics, tree or rules."""
    import yaml

    text = (files("aisp_mcp.profile.insights") / "metrics.yaml").read_text("utf-8")
    values: dict[str, Any] = yaml.safe_load(text)[section]
    return values
