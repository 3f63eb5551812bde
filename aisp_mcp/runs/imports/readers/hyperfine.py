"""hyperfine: --export-json (with every run's time) and --export-csv (without)."""

from __future__ import annotations

from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, name, number, numbers, time_figure
from aisp_mcp.runs.imports.records import Contents, Figure

_CSV = {"command", "mean", "stddev", "user", "system"}


def _accepts(source: Source) -> bool:
    rows = source.get("results")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return "command" in rows[0] and "mean" in rows[0]
    return bool(source.table) and source.table[0].keys() >= _CSV


def _read(source: Source) -> Contents:
    rows = source.get("results") or source.table
    figures = [figure for row in rows if isinstance(row, dict) for figure in _figure(row)]
    failed = [name(row.get("command")) for row in rows if isinstance(row, dict) and any(row.get("exit_codes") or [])]
    notes = [f"Runs of {command!r} ended with an exit code other than 0." for command in failed]
    return Contents(figures=figures, notes=notes)


def _figure(row: dict[str, Any]) -> list[Figure]:
    mean = number(row.get("mean"))
    if mean is None:
        return []
    samples = numbers(row.get("times"))
    settings = row.get("parameters") or {key[10:]: text for key, text in row.items() if key.startswith("parameter_")}
    return [
        time_figure(
            name(row.get("command")),
            mean,
            "mean",
            samples=samples,
            sample_of="run",
            count=len(row.get("times") or []) or None,
            spread=number(row.get("stddev")),
            parameters={name(key): name(value) for key, value in settings.items()},
        )
    ]


HYPERFINE = Reader("hyperfine", _accepts, _read, "hyperfine --export-json FILE keeps the time of every run")
