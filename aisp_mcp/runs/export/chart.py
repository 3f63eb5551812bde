"""The chart of a run: the ratios of its comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.server.charts import ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import Ratio


def of_comparisons(comparisons: Sequence[Comparison]) -> Drawing:
    """The ratios of a run, for its report."""
    rows = []
    for comparison in comparisons:
        low, high = (comparison.interval.low, comparison.interval.high) if comparison.interval else (None, None)
        rows.append(
            Ratio(comparison.label, comparison.verdict.value, comparison.ratio, low, high, comparison.noise_floor)
        )
    return ratios.draw(rows)
