"""The figures that tests draw."""

from __future__ import annotations

from typing import Any


def rulings(name: str) -> list[dict[str, Any]]:
    """One faster under the name given, one invalid."""
    fast = {"target": name, "verdict": "faster", "ratio": 2.0, "interval": [1.9, 2.1], "noise_floor": 0.01}
    return [fast, {"target": "ch01:b", "verdict": "invalid", "ratio": None, "interval": [], "noise_floor": None}]
