"""The opening of a gate's page: the outcome of the change, and each benchmark's ratio of base to head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aisp_mcp.front.dashboard.words import count, listed
from aisp_mcp.server.charts import ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import Ratio

Data = Mapping[str, Any]
SHORT, MOST = 10, 60
# The style of a verdict for each outcome; others are grey.
STYLES = {"improved": "faster", "unchanged": "same", "regressed": "slower", "wrong": "incorrect", "failed": "invalid"}


def is_gate(result: Data | None) -> bool:
    """True for the answer of a gate between two commits."""
    return isinstance(result, Mapping) and {"base", "head", "rows", "passed"} <= set(result)


def commits(result: Data) -> tuple[str, str]:
    """Base and head, short."""
    return str(result["base"])[:SHORT], str(result["head"])[:SHORT] if " " not in result["head"] else result["head"]


def lead(result: Data) -> str:
    """Passed or not, and the number of benchmarks by outcome."""
    base, head = commits(result)
    outcomes = Counter(str(row["outcome"]).replace("_", " ") for row in result["rows"])
    text = listed(f"{number} {name}" for name, number in outcomes.items())
    state = "passes" if result["passed"] else "does not pass"
    return f"{head} against {base} {state}: of {count(len(result['rows']), 'benchmark')}, {text}."


def drawing(result: Data) -> Drawing | None:
    """Ratios with intervals; right of 1× the head is faster."""
    rows = [
        Ratio(
            row["target"],
            STYLES.get(row["outcome"], "inconclusive"),
            row.get("ratio"),
            row.get("low"),
            row.get("high"),
            row.get("noise_floor"),
        )
        for row in result["rows"][:MOST]
        if row.get("ratio")
    ]
    return ratios.draw(rows, "Time of base over time of head") if rows else None
