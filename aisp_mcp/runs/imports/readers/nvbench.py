"""nvbench: --json, and the binary samples that --jsonbin writes next to it."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number, numbers, time_figure
from aisp_mcp.runs.imports.records import Contents, Figure

_TIMES = {"nv/cold/time/gpu/mean": "gpu time", "nv/cold/time/cpu/mean": "cpu time", "nv/batch/time/gpu/mean": "batch"}
_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_MAX_BYTES = 2**28


def _accepts(source: Source) -> bool:
    return isinstance(source.get("benchmarks"), list) and isinstance(source.get("devices"), list)


def _read(source: Source) -> Contents:
    devices = {row.get("id"): name(row.get("name")) for row in source.get("devices") if isinstance(row, dict)}
    figures, skipped = list[Figure](), 0
    for benchmark in source.get("benchmarks"):
        for state in benchmark.get("states") or []:
            if state.get("is_skipped"):
                skipped += 1
            else:
                figures += _figures(source, name(benchmark.get("name")), state, devices)
    return Contents(
        figures=figures,
        tool_version=source.get("meta", "version", "nvbench", "string"),
        machine=", ".join(dict.fromkeys(devices.values())) or None,
        notes=left_out(skipped, "states that the benchmark skipped"),
    )


def _figures(source: Source, title: str, state: dict[str, Any], devices: dict[Any, str]) -> list[Figure]:
    summaries = {row.get("tag"): _data(row) for row in state.get("summaries") or [] if isinstance(row, dict)}
    words = {name(row.get("name")): name(_axis(row)) for row in state.get("axis_values") or []}
    words["device"] = devices.get(state.get("device"), name(state.get("device")))
    count = number(summaries.get("nv/cold/sample_size", {}).get("value"))
    figures = []
    for tag, metric in _TIMES.items():
        value = number(summaries.get(tag, {}).get("value"))
        if value is None:
            continue
        relative = number(summaries.get(tag.replace("mean", "stdev/relative"), {}).get("value"))
        samples = _samples(source, summaries.get(_SAMPLES, {})) if metric == "gpu time" else []
        figure = time_figure(
            title, value, "mean", samples=samples, sample_of="launch", parameters=words,
            count=int(count) if count and metric != "batch" else None,
            spread=relative * value if relative is not None else None,
        )  # fmt: skip
        figures.append(figure.model_copy(update={"metric": metric}))
    return figures


def _axis(row: dict[str, Any]) -> Any:
    return row.get("input_string") or row.get("value")


def _data(row: dict[str, Any]) -> dict[str, Any]:
    """The named values of a summary; the older form of the file writes them as an object."""
    data = row.get("data")
    if isinstance(data, list):
        return {str(item.get("name")): item.get("value") for item in data if isinstance(item, dict)}
    return data if isinstance(data, dict) else {}


def _samples(source: Source, data: dict[str, Any]) -> list[float]:
    """Seconds of single launches, little-endian 32-bit floats. Only a file below the result's own folder is opened."""
    if not isinstance(data.get("filename"), str):
        return []
    folder = source.path.resolve().parent
    for path in (folder / data["filename"], folder.parent / data["filename"], folder / Path(data["filename"]).name):
        where = path.resolve()
        if where.is_relative_to(folder) and where.is_file() and where.stat().st_size <= _MAX_BYTES:
            values = array("f")
            values.frombytes(where.read_bytes()[: where.stat().st_size // 4 * 4])
            return numbers(values.tolist())
    return []


NVBENCH = Reader("nvbench", _accepts, _read, "--jsonbin FILE keeps the time of every launch next to the JSON file")
