"""pytest-benchmark: --benchmark-json, which contains every round, or a saved file, which may not."""

from __future__ import annotations

from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number, numbers, time_figure, utc
from aisp_mcp.runs.imports.records import Contents, Figure


def _accepts(source: Source) -> bool:
    rows = source.get("benchmarks")
    return isinstance(rows, list) and "machine_info" in source.document and not source.get("context")


def _read(source: Source) -> Contents:
    rows = [row for row in source.get("benchmarks") if isinstance(row, dict)]
    figures = [figure for row in rows for figure in _figure(row)]
    machine = source.get("machine_info") or {}
    cpu = source.get("machine_info", "cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    words = (machine.get("node"), cpu.get("brand_raw") or cpu.get("brand") or machine.get("processor"))
    return Contents(
        figures=figures,
        tool_version=source.get("version") and name(source.get("version")),
        machine=name(", ".join(str(word) for word in words if word)) or None,
        commit=source.get("commit_info", "id") and name(source.get("commit_info", "id")),
        measured_at=utc(source.get("datetime")),
        notes=left_out(len(rows) - len(figures), "no mean time (the test failed or was disabled)"),
    )


def _figure(row: dict[str, Any]) -> list[Figure]:
    stats = row.get("stats") or {}
    value = number(stats.get("median"))
    statistic = "median" if value is not None else "mean"
    value = value if value is not None else number(stats.get("mean"))
    if value is None:
        return []
    samples = numbers(stats.get("data") or row.get("data"))
    rounds = number(stats.get("rounds"))
    return [
        time_figure(
            name(row.get("fullname") or row.get("name")),
            value,
            statistic,
            samples=samples,
            sample_of=f"round of {name(stats['iterations'])} calls" if stats.get("iterations") else "round",
            count=int(rounds) if rounds else None,
            spread=number(stats.get("stddev")),
        )
    ]


PYTEST_BENCHMARK = Reader(
    "pytest-benchmark",
    _accepts,
    _read,
    "pytest --benchmark-json FILE keeps rounds; autosave needs --benchmark-save-data",
)
