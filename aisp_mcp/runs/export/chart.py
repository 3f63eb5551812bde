"""The chart of a run: the ratios of its comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.server.charts import ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import Ratio
from aisp_mcp.store.records.verdict_row import is_provisional


def of_comparisons(comparisons: Sequence[Comparison], preset: str = "") -> Drawing:
    """The ratios of a run, for its report. preset: the run's."""
    rows = []
    for comparison in comparisons:
        low, high = (comparison.interval.low, comparison.interval.high) if comparison.interval else (None, None)
        row = Ratio(comparison.label, comparison.verdict.value, comparison.ratio, low, high, comparison.noise_floor)
        provisional = is_provisional(preset, comparison.replicates, comparison.verdict)
        rows.append(replace(row, at_least=comparison.at_least, provisional=provisional))
    return ratios.draw(rows)
