"""AIPerf: profile_export.jsonl with every request, and profile_export_aiperf.json with only statistics."""

from __future__ import annotations

from typing import Any

from aisp_mcp.runs.imports.readers.requests import SERVING, Request, latencies, rate
from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number
from aisp_mcp.runs.imports.records import Contents, Figure

_SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_STATED = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e latency"}
_RATES = {
    "request_throughput": ("request throughput", "requests/s"),
    "output_token_throughput": ("output throughput", "tokens/s"),
    "goodput": ("goodput", "requests/s"),
}


def _accepts(source: Source) -> bool:
    row = source.objects[0] if source.objects else {}
    if isinstance(row.get("metrics"), dict) and isinstance(row.get("metadata"), dict):
        return True
    return isinstance(row.get("request_latency"), dict) and "avg" in row["request_latency"]


def _read(source: Source) -> Contents:
    if isinstance(source.get("request_latency"), dict):
        return _statistics(source.document)
    answered = requests(source)
    begins = [request.begin_s for request in answered if request.begin_s]
    missing = len(source.objects) - len(answered)
    return Contents(
        figures=latencies(answered, SERVING, {}),
        measured_at=min(begins, default=None),
        notes=left_out(missing, "requests without first token, latency or length"),
    )


def requests(source: Source) -> list[Request]:
    """Single requests of profile_export.jsonl without warm-up, in the order in which they were sent."""
    all_requests = [request for row in source.objects if (request := _request(row))]
    return sorted(all_requests, key=lambda request: request.begin_s or 0.0)


def _request(row: dict[str, Any]) -> Request | None:
    metrics, about = row.get("metrics") or {}, row.get("metadata") or {}
    ttft, latency = _seconds(metrics.get("time_to_first_token")), _seconds(metrics.get("request_latency"))
    tokens = number((metrics.get("output_sequence_length") or {}).get("value"))
    if row.get("error") or about.get("benchmark_phase") == "warmup" or ttft is None or latency is None or not tokens:
        return None
    begin = number(about.get("request_start_ns"))
    return Request(ttft, latency, int(tokens), begin / 1e9 if begin else None)


def _seconds(metric: Any) -> float | None:
    value = number(metric.get("value")) if isinstance(metric, dict) else None
    return None if value is None else value * _SCALE.get(metric.get("unit"), 1.0)


def _statistics(document: dict[str, Any]) -> Contents:
    figures = list[Figure]()
    title, settings = _about(document)
    for key, metric in _STATED.items():
        row = document.get(key)
        if isinstance(row, dict) and (value := number(row.get("p50"))) is not None:
            scale, spread = _SCALE.get(str(row.get("unit")), 1.0), number(row.get("std"))
            figures.append(
                Figure(
                    name=title, metric=metric, unit="s", better="lower", value=scale * value, statistic="median",
                    spread=None if spread is None else scale * spread, parameters=settings,
                )
            )  # fmt: skip
    for key, (metric, unit) in _RATES.items():
        row = document.get(key)
        if isinstance(row, dict) and (value := number(row.get("avg"))) is not None:
            figures.append(rate(title, metric, unit, value, settings))
    return Contents(figures=figures, tool_version=document.get("aiperf_version"))


def _about(document: dict[str, Any]) -> tuple[str, dict[str, str]]:
    config = document.get("input_config") or {}
    models = (config.get("endpoint") or {}).get("model_names") or []
    load = config.get("loadgen") or {}
    settings = {key: name(load[key]) for key in ("concurrency", "request_rate") if load.get(key) is not None}
    return (name(models[0]) if models else SERVING), settings


AIPERF = Reader("aiperf", _accepts, _read, "import profile_export.jsonl, which AIPerf writes next to the JSON file")
