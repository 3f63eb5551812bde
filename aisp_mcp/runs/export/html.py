"""A run as one HTML file that fetches nothing, without scripts or fonts; all text from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.runs.export.markdown import environment_rows, noise, subject
from aisp_mcp.server.charts import drawing, ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import visible
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import is_provisional

_SHOWN_COMPARISONS = 60  # a taller chart is unreadable; the table has all rows


def to_html(run: Run) -> bytes:
    """A self-contained report: chart, table, evidence per comparison, environment. Light, dark and print."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("aisp_mcp.runs.export"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=visible, facts=environment_rows)
    environment.filters.update(ratio=numbers.ratio, seconds=numbers.seconds, percent=numbers.percent, size=numbers.size)
    page = environment.get_template("report.html.j2").render(_view(run))
    return page.encode("utf-8", "replace")


def _view(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "chart_style": drawing.style(),
        "made_at": numbers.moment(run.created_at),
        "version": __version__,
        "counts": [(word.value, n) for word in Verdict if (n := sum(c.verdict is word for c in run.comparisons))],
        "chart": drawing.to_svg(of_comparisons(run.comparisons[:_SHOWN_COMPARISONS], run.preset)),
        "legend": ratios.LEGEND,
        "left_out": max(0, len(run.comparisons) - _SHOWN_COMPARISONS),
        "details": [
            (comparison, figure_rows(comparison), environment_rows(comparison.disclosed))
            for comparison in run.comparisons
        ],
        "environment": environment_rows(run.environment),
        "noise": noise(run),
        "subject": subject(run),
    }


def figure_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """(label, baseline, candidate) for the table of one comparison, without empty rows."""
    rows = []
    for name, say in _SIDE_ROWS:
        left, right = (
            say(figures) if figures else numbers.MISSING for figures in (comparison.baseline, comparison.optimized)
        )
        if (left, right) != (numbers.MISSING, numbers.MISSING):
            rows.append((name, left, right))
    return rows


def _amount(value: int) -> str:
    return f"{value:,}"


def _latency(name: str, figures: Figures) -> str:
    """Percentiles of one latency of an engine."""
    percentiles = getattr(figures.serving, name.lower(), None)
    if percentiles is None:
        return numbers.MISSING
    return ", ".join(map(numbers.seconds, (percentiles.p50_s, percentiles.p95_s, percentiles.p99_s)))


_SIDE_ROWS: tuple[tuple[str, Any], ...] = (
    ("time per call", lambda figures: _of_calls(figures, figures.time_s)),
    ("of the goal", lambda figures: _metric(figures)),
    ("by the parent's clock", lambda figures: _of_calls(figures, figures.parent_time_s)),
    ("median of calls", lambda figures: _of_calls(figures, figures.p50_s)),
    ("95th percentile", lambda figures: _of_calls(figures, figures.p95_s)),
    ("99th percentile", lambda figures: _of_calls(figures, figures.p99_s)),
    *((f"{name}: p50, p95, p99", partial(_latency, name)) for name in ("TTFT", "TPOT", "ITL", "E2E")),
    ("goodput", lambda figures: numbers.rate(figures.serving and figures.serving.goodput_tokens_per_s, "tokens/s")),
    ("requests within the service level", lambda figures: numbers.percent(figures.serving and figures.serving.slo_met)),
    ("processes, rounds, calls", lambda figures: _counts(figures)),
    ("arithmetic rate", lambda figures: numbers.rate(figures.flops_per_s, "FLOP/s")),
    ("data rate", lambda figures: numbers.rate(figures.bytes_per_s, "B/s")),
    ("items", lambda figures: numbers.rate(figures.items_per_s, f"{figures.unit}/s")),
    ("peak host memory", lambda figures: numbers.size(figures.memory.host_peak_rss)),
    ("peak device memory, allocated", lambda figures: numbers.size(figures.memory.device_peak_allocated)),
    ("peak device memory, reserved", lambda figures: numbers.size(figures.memory.device_peak_reserved)),
    ("CPU time of start, import, prepare", lambda figures: numbers.seconds(figures.prepare_s)),
)


def _metric(figures: Figures) -> str:
    """Name, value and unit of the goal's metric."""
    metric = figures.metric
    return f"{metric.name} {numbers.quantity(metric.value, metric.unit)}" if metric else numbers.MISSING


def _of_calls(figures: Figures, value: float | None) -> str:
    """A time of single calls, which an engine does not have."""
    return numbers.MISSING if figures.serving else numbers.seconds(value)


def _counts(figures: Figures) -> str:
    return " / ".join(map(_amount, (figures.processes, figures.rounds, figures.calls)))


def of_comparisons(comparisons: Sequence[Comparison], preset: str = "") -> Drawing:
    """The ratios of a run, for its report. preset: the run's."""
    rows = []
    for comparison in comparisons:
        low, high = (comparison.interval.low, comparison.interval.high) if comparison.interval else (None, None)
        row = RatioRow(comparison.label, comparison.verdict.value, comparison.ratio, low, high, comparison.noise_floor)
        provisional = is_provisional(preset, comparison.replicates, comparison.verdict)
        rows.append(replace(row, at_least=comparison.at_least, provisional=provisional))
    return ratios.draw(rows)
