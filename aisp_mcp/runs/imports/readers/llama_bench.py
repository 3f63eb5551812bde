"""llama.cpp's llama-bench: -o json, jsonl or csv. JSON forms contain the rate of every repetition."""

from __future__ import annotations

from pathlib import PurePath
from statistics import median
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, name, number, numbers, parameters, utc
from aisp_mcp.runs.imports.records import Contents, Figure

_SETTINGS = (
    "backends", "n_threads", "n_batch", "n_ubatch", "n_gpu_layers", "flash_attn", "type_k", "type_v", "split_mode"
)  # fmt: skip
Row = dict[str, Any]


def _rows(source: Source) -> list[Row]:
    rows: list[Row] = source.objects or list(source.table)
    return [row for row in rows if number(row.get("avg_ts")) is not None and "n_prompt" in row and "n_gen" in row]


def _accepts(source: Source) -> bool:
    return bool(_rows(source))


def _read(source: Source) -> Contents:
    rows = _rows(source)
    first = rows[0]
    words = (first.get("cpu_info"), first.get("gpu_info"))
    return Contents(
        figures=[_figure(row) for row in rows],
        tool_version=name(first["build_number"]) if first.get("build_number") else None,
        machine=name(", ".join(str(word) for word in words if word)) or None,
        measured_at=utc(first.get("test_time")),
    )


def _figure(row: Row) -> Figure:
    samples = numbers(row.get("samples_ts"))
    return Figure(
        name=name(row.get("model_type") or PurePath(str(row.get("model_filename", "model"))).name),
        metric=_test(row),
        unit="tokens/s",
        better="higher",
        value=median(samples) if samples else float(row["avg_ts"]),
        statistic="median" if samples else "mean",
        samples=samples,
        sample_of="repetition" if samples else None,
        count=len(samples) or None,
        spread=number(row.get("stddev_ts")),
        parameters=parameters(row, _SETTINGS),
    )


def _test(row: Row) -> str:
    """The measurement, as llama-bench abbreviates it: pp512, tg128, pp512+tg128, pp512 @ d4096."""
    prompt, output, depth = (int(number(row.get(key)) or 0) for key in ("n_prompt", "n_gen", "n_depth"))
    words = [f"pp{prompt}"] if prompt else []
    words += [f"tg{output}"] if output else []
    return "+".join(words) + (f" @ d{depth}" if depth else "")


LLAMA_BENCH = Reader("llama-bench", _accepts, _read, "llama-bench -o json keeps the rate of every repetition")
