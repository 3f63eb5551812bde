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
    notes = [
        f"{name(row.get('command'))!r}: {why}."
        for row in rows
        if isinstance(row, dict) and (why := _failed(row) or _cut(row))
    ]
    return Contents(figures=figures, notes=notes)


def _failed(row: dict[str, Any]) -> str | None:
    """What the exit codes say; older versions wrote none. null: hyperfine saw no code, as after a signal."""
    if "exit_codes" not in row:
        return None
    codes = row["exit_codes"]
    if not isinstance(codes, list):
        return "the file contains no exit codes of its runs"
    bad = [code for code in codes if code != 0]
    if not bad:
        return None
    seen = sorted({"no exit code (killed)" if code is None else f"exit code {name(code)}" for code in bad})
    return f"{len(bad)} of {len(codes)} runs ended with {', '.join(seen)}"


def _cut(row: dict[str, Any]) -> str | None:
    """hyperfine subtracts the start of its shell and cuts what is left at 0."""
    times = numbers(row.get("times")) or [value for key in ("mean", "median") if (value := number(row.get(key)))]
    zero = any(time <= 0 for time in times) or not times
    return "runs of 0 s: shorter than the start of the shell, measure with --shell=none" if zero else None


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
            failed=_failed(row) or _cut(row),
        )
    ]


HYPERFINE = Reader("hyperfine", _accepts, _read, "hyperfine --export-json FILE keeps the time of every run")
