"""pyperf: JSON of one or several benchmarks. Values are per iteration; calibration and warm-ups are apart."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number, numbers, utc
from aisp_mcp.runs.imports.records import Contents, Figure

_UNITS = {"second": ("time", "s"), "byte": ("memory", "B"), "integer": ("value", "not stated")}
Row = dict[str, Any]


def _accepts(source: Source) -> bool:
    rows = source.get("benchmarks")
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and isinstance(rows[0].get("runs"), list)


def _read(source: Source) -> Contents:
    shared = source.get("metadata") or {}
    figures = [_figure({**shared, **(row.get("metadata") or {})}, row) for row in source.get("benchmarks")]
    known = [figure for figure in figures if figure is not None]
    first = {**shared, **(source.get("benchmarks")[0]["runs"][0].get("metadata") or {})}
    words = (first.get("hostname"), first.get("cpu_model_name"))
    return Contents(
        figures=known,
        tool_version=name(first["perf_version"]) if first.get("perf_version") else None,
        machine=name(", ".join(str(word) for word in words if word)) or None,
        measured_at=utc(first.get("date"), "%Y-%m-%d %H:%M:%S.%f"),
        notes=left_out(len(figures) - len(known), "no value, only calibration or warm-ups"),
    )


def _figure(metadata: Row, row: Row) -> Figure | None:
    samples = [value for run in row["runs"] for value in numbers(run.get("values"))]
    if not samples:
        return None
    metric, unit = _UNITS.get(str(metadata.get("unit", "second")), ("value", "not stated"))
    loops = number(metadata.get("inner_loops"))
    return Figure(
        name=name(metadata.get("name", "benchmark")),
        metric=metric,
        unit=unit,
        better="unknown" if unit == "not stated" else "lower",
        value=mean(samples),
        statistic="mean",
        samples=samples,
        sample_of="value of a run",
        count=len(samples),
        spread=stdev(samples) if len(samples) > 1 else None,
        parameters={"inner_loops": f"{loops:g}"} if loops else {},
    )


PYPERF = Reader(
    "pyperf", _accepts, _read, "pyperf keeps the values of every run; --processes and --values set their number"
)
