"""asv: result files of versions 1 and 2. They contain samples only with `asv run --record-samples`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product, zip_longest
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number, numbers
from aisp_mcp.runs.imports.records import Better, Contents, Figure

_COLUMNS = ["result", "params"]
_UNITS: dict[str, tuple[str, str]] = {
    "time": ("time", "s"), "mem": ("memory", "B"), "peakmem": ("peak memory", "B"), "timeraw": ("time", "s")
}  # fmt: skip


def _accepts(source: Source) -> bool:
    return isinstance(source.get("results"), dict) and "commit_hash" in source.document


def _read(source: Source) -> Contents:
    columns = source.get("result_columns") or _COLUMNS
    figures, empty, odd = list[Figure](), 0, 0
    for title, row in source.get("results").items():
        for value, samples, settings in _values(row, columns):
            if isinstance(value, str):
                odd += 1
            elif value is None:
                empty += 1
            else:
                figures.append(_figure(title, value, samples, settings))
    machine, date = source.get("params") or {}, number(source.get("date"))
    words = (machine.get("machine"), machine.get("cpu"))
    return Contents(
        figures=figures,
        machine=name(", ".join(str(word) for word in words if word)) or None,
        commit=name(source.get("commit_hash")),
        measured_at=_started(source, columns) or (date / 1000 if date else None),
        notes=left_out(empty, "no result in the file (failed or skipped there)")
        + left_out(odd, "the value is true, false, infinite or text, which no ratio can use"),
    )


def _started(source: Source, columns: list[str]) -> float | None:
    """Start time of the first benchmark; the file's own date is that of the commit."""
    column = columns.index("started_at") if "started_at" in columns else None
    rows = [row for row in source.get("results").values() if isinstance(row, list) and column is not None]
    times = [number(row[column]) for row in rows if column is not None and len(row) > column]
    known = [value for value in times if value]
    return min(known) / 1000 if known else None


def _values(row: Any, columns: list[str]) -> Iterator[tuple[float | str | None, list[float], dict[str, str]]]:
    """(value, samples, parameters) of each combination of parameters."""
    if isinstance(row, list):
        row = dict(zip(columns, row, strict=False))
    if not isinstance(row, dict):
        yield _value(row), [], {}
        return
    results = row.get("result")
    if not isinstance(results, list):
        results = [results]
    names = list(product(*(row.get("params") or [])))
    for value, samples, words in zip_longest(results, row.get("samples") or [], names):
        yield _value(value), numbers(samples), {f"p{i}": name(word) for i, word in enumerate(words or (), 1)}


def _value(value: Any) -> float | str | None:
    """A number; None where asv has no result (null raised, NaN skipped); the text of any other value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value) if isinstance(value, str) or (found := number(value)) is None else found


def _figure(title: str, value: float, samples: list[float], words: dict[str, str]) -> Figure:
    kind = title.rpartition(".")[2].partition("_")[0]
    metric, unit = _UNITS.get(kind, ("tracked value", "not stated"))
    better: Better = "lower" if kind in _UNITS else "unknown"
    return Figure(
        name=name(title), metric=metric, unit=unit, better=better, value=value, samples=samples, parameters=words,
        statistic="median" if unit == "s" else "value", sample_of="sample" if samples else None,
    )  # fmt: skip


ASV = Reader("asv", _accepts, _read, "asv run --record-samples keeps samples")
