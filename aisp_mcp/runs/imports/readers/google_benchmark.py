"""google-benchmark: --benchmark_format=json or --benchmark_out. A repetition is a sample; iterations are averaged."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number, time_figure, utc
from aisp_mcp.runs.imports.records import Contents, Figure

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {"items_per_second": ("items", "items/s"), "bytes_per_second": ("bandwidth", "B/s")}
Row = dict[str, Any]


def _accepts(source: Source) -> bool:
    rows = source.get("benchmarks")
    if not isinstance(rows, list) or not isinstance(source.get("context"), dict):
        return False
    return not rows or (isinstance(rows[0], dict) and "name" in rows[0] and "machine_info" not in source.document)


def _read(source: Source) -> Contents:
    rows = [row for row in source.get("benchmarks") if isinstance(row, dict)]
    failed = [row for row in rows if row.get("error_occurred") or row.get("skipped")]
    runs, totals = defaultdict[str, list[Row]](list), defaultdict[str, dict[str, Row]](dict)
    for row in rows:
        title = name(row.get("run_name") or row.get("name"))
        if row in failed or number(row.get("real_time")) is None:
            continue
        if row.get("run_type") == "aggregate":
            totals[title][str(row.get("aggregate_name"))] = row
        else:
            runs[title].append(row)
    figures = [figure for title, rows in runs.items() for figure in _measured(title, rows, totals.get(title, {}))]
    figures += [figure for title in totals.keys() - runs.keys() for figure in _aggregate(title, totals[title])]
    context = source.get("context")
    words = (context.get("host_name"), f"{context['num_cpus']} CPUs" if context.get("num_cpus") else None)
    notes = left_out(len(failed), "the benchmark failed or was skipped")
    if context.get("library_build_type") == "debug":
        doubt = "The benchmark library was a debug build: its times are not to be compared."
        notes.append(doubt)
        figures = [figure.model_copy(update={"doubt": doubt.rstrip(".")}) for figure in figures]
    return Contents(
        figures=figures,
        tool_version=context.get("library_version") and name(context["library_version"]),
        machine=name(", ".join(str(word) for word in words if word)) or None,
        measured_at=utc(context.get("date"), "%Y-%m-%d %H:%M:%S"),
        notes=notes,
    )


def _scale(row: Row) -> float:
    return _SECONDS.get(str(row.get("time_unit", "ns")), 1e-9)


def _measured(title: str, rows: list[Row], totals: dict[str, Row]) -> list[Figure]:
    """Figures of single repetitions, with real and CPU time and rates."""
    figures = []
    for key, metric in (("real_time", "time"), ("cpu_time", "cpu time")):
        values = [_scale(row) * x for row in rows if (x := number(row.get(key))) is not None]
        if values:
            figures.append(_figure(title, metric, "s", values, totals.get("stddev"), key))
    for key, (metric, unit) in _RATES.items():
        values = [x for row in rows if (x := number(row.get(key))) is not None]
        if values:
            figures.append(_figure(title, metric, unit, values, None, key))
    return figures


def _figure(title: str, metric: str, unit: str, values: list[float], deviation: Row | None, key: str) -> Figure:
    spread = number((deviation or {}).get(key))
    return Figure(
        name=title,
        metric=metric,
        unit=unit,
        better="lower" if unit == "s" else "higher",
        value=median(values),
        statistic="median" if len(values) > 1 else "mean",
        samples=values if len(values) > 1 else [],
        sample_of="repetition" if len(values) > 1 else None,
        count=len(values),
        spread=spread * _scale(deviation) if spread is not None and deviation else None,
    )


def _aggregate(title: str, totals: dict[str, Row]) -> list[Figure]:
    """The figure of a file that contains only aggregates."""
    for statistic in ("median", "mean"):
        if row := totals.get(statistic):
            spread, count = number(totals.get("stddev", {}).get("real_time")), number(row.get("repetitions"))
            return [
                time_figure(
                    title,
                    _scale(row) * float(row["real_time"]),
                    statistic,
                    count=int(count) if count else None,
                    spread=spread * _scale(row) if spread is not None else None,
                )
            ]
    return []


GOOGLE_BENCHMARK = Reader(
    "google-benchmark", _accepts, _read, "--benchmark_repetitions=10 without --benchmark_report_aggregates_only"
)
