"""GuideLLM: the JSON report of a run, with every request unless it was configured to sample them."""

from __future__ import annotations

from typing import Any

from aisp_mcp.runs.imports.readers.requests import SERVING, Request, latencies, lost, rate
from aisp_mcp.runs.imports.readers.source import Reader, Source, left_out, name, number
from aisp_mcp.runs.imports.records import Contents, Figure

_RATES = {
    "requests_per_second": ("request throughput", "requests/s"),
    "output_tokens_per_second": ("output throughput", "tokens/s"),
}
_STATED = {
    "time_to_first_token_ms": "ttft", "inter_token_latency_ms": "tpot", "request_latency": "e2e latency"
}  # fmt: skip


def _accepts(source: Source) -> bool:
    rows = source.get("benchmarks")
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
        return False
    return "time_to_first_token_ms" in (rows[0].get("metrics") or {})


def _read(source: Source) -> Contents:
    figures, notes = list[Figure](), list[str]()
    for benchmark in source.get("benchmarks"):
        figures += _figures(benchmark, notes)
    return Contents(
        figures=figures,
        tool_version=source.get("metadata", "guidellm_version"),
        machine=source.get("metadata", "platform") and f"client: {name(source.get('metadata', 'platform'))}",
        measured_at=number(source.get("benchmarks")[0].get("start_time")),
        notes=notes,
    )


def _figures(benchmark: dict[str, Any], notes: list[str]) -> list[Figure]:
    title, settings = _title(benchmark), _settings(benchmark)
    totals = (benchmark.get("metrics") or {}).get("request_totals") or {}
    left = sum(int(number(totals.get(key)) or 0) for key in ("errored", "incomplete"))
    notes += left_out(left, "requests that failed or were not finished")
    errored, done = int(number(totals.get("errored")) or 0), int(number(totals.get("successful")) or 0)
    figures = latencies(answered := requests(benchmark), title, settings)
    figures = figures or _stated(benchmark, title, settings)
    for key, (metric, unit) in _RATES.items():
        if (value := _mean(benchmark, key)) is not None:
            figures.append(rate(title, metric, unit, value, settings))
    return lost(figures, errored, errored + (done or len(answered)))


def _title(benchmark: dict[str, Any]) -> str:
    for section in (
        (benchmark.get("config") or {}).get("backend"),
        benchmark.get("benchmarker"),
        benchmark.get("args"),
    ):
        if isinstance(section, dict) and (model := section.get("model") or (section.get("backend") or {}).get("model")):
            return name(model)
    return SERVING


def _settings(benchmark: dict[str, Any]) -> dict[str, str]:
    """The load: strategy, streams, rate. Older reports name them in `args`."""
    for parent in ("config", "scheduler", "args"):
        strategy = (benchmark.get(parent) or {}).get("strategy")
        if isinstance(strategy, dict):
            keys = ("type_", "streams", "rate", "max_concurrency")
            return {key.strip("_"): name(strategy[key]) for key in keys if strategy.get(key) is not None}
    return {}


def requests(benchmark: dict[str, Any]) -> list[Request]:
    """Single successful requests, in the order in which they were sent."""
    rows = benchmark.get("requests") or {}
    rows = rows.get("successful") if isinstance(rows, dict) else rows
    all_requests = [request for row in rows or [] if isinstance(row, dict) and (request := _request(row))]
    return sorted(all_requests, key=lambda request: request.begin_s or 0.0)


def _request(row: dict[str, Any]) -> Request | None:
    ttft, latency = number(row.get("time_to_first_token_ms")), number(row.get("request_latency"))
    tokens = number(row.get("output_tokens"))
    if ttft is None or latency is None or not tokens:
        return None
    begin = number(row.get("request_start_time") or row.get("start_time"))
    texts = [text for key in ("output", "reasoning_output") if isinstance(text := row.get(key), str)]
    return Request(ttft / 1000, latency, int(tokens), begin, "".join(texts) if texts else None)


def _mean(benchmark: dict[str, Any], key: str) -> float | None:
    row = (benchmark.get("metrics") or {}).get(key) or {}
    return number((row.get("successful") or row).get("mean")) if isinstance(row, dict) else None


def _stated(benchmark: dict[str, Any], title: str, settings: dict[str, str]) -> list[Figure]:
    """Medians, for a report without requests."""
    figures = []
    for key, metric in _STATED.items():
        row = ((benchmark.get("metrics") or {}).get(key) or {}).get("successful") or {}
        if (value := number(row.get("median"))) is not None:
            scale = 1e-3 if key.endswith("_ms") else 1.0
            figures.append(
                Figure(
                    name=title, metric=metric, unit="s", better="lower", value=scale * value, statistic="median",
                    parameters=settings, count=int(number(row.get("count")) or 0) or None,
                )
            )  # fmt: skip
    return figures


GUIDELLM = Reader("guidellm", _accepts, _read, "guidellm run --output kind=json keeps requests (no sample_size)")
