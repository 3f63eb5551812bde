"""vLLM's `bench serve`, SGLang's `bench_serving`, and the files of InferenceMAX, which come from the former.

vLLM writes milliseconds with the suffix _ms; InferenceMAX writes seconds without it.
"""

from __future__ import annotations

import re
from typing import Any

from aisp_mcp.runs.imports.readers.requests import SERVING, Request, latencies, lost, rate
from aisp_mcp.runs.imports.readers.source import Reader, Source, name, number, parameters, utc
from aisp_mcp.runs.imports.records import Contents, Figure

Row = dict[str, Any]
_STATED = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)(_ms)?")
_METRIC = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e latency", "e2e_latency": "e2e latency"}
_RATES = {
    "request_throughput": ("request throughput", "requests/s"),
    "request_goodput": ("goodput", "requests/s"),
    "output_throughput": ("output throughput", "tokens/s"),
    "total_token_throughput": ("total throughput", "tokens/s"),
    "total_throughput": ("total throughput", "tokens/s"),
    "tput_per_gpu": ("throughput per GPU", "tokens/s"),
    "output_tput_per_gpu": ("output throughput per GPU", "tokens/s"),
}
_SETTINGS = (
    "backend", "hw", "framework", "precision", "tp", "ep", "conc", "isl", "osl", "dataset_name", "num_prompts",
    "request_rate", "max_concurrency", "random_input_len", "random_output_len", "label",
)  # fmt: skip


def _accepts(source: Source) -> bool:
    row = source.objects[0] if source.objects else {}
    return any(_STATED.fullmatch(key) for key in row) and bool(row.keys() & _RATES.keys())


def _read(source: Source) -> Contents:
    figures, notes = list[Figure](), list[str]()
    for row in source.objects:
        figures += _figures(row, notes)
    first = source.objects[0]
    return Contents(
        figures=figures,
        machine=name(first["hw"]) if first.get("hw") else None,
        measured_at=utc(first.get("date"), "%Y%m%d-%H%M%S"),
        notes=notes,
    )


def _figures(row: Row, notes: list[str]) -> list[Figure]:
    title = name(row.get("model_id") or row.get("model") or row.get("model_path") or SERVING)
    settings = parameters(row, _SETTINGS)
    failed, sent = _failed(row)
    if failed:
        notes.append(f"{failed} of {sent} requests did not succeed.")
    answered = requests(row)
    measured = latencies(answered, title, settings)
    stated = _stated(row, title, settings, {figure.metric for figure in measured})
    rates = [
        rate(title, *_RATES[key], value, settings) for key in _RATES if (value := number(row.get(key))) is not None
    ]
    return lost([*measured, *stated, *rates], failed, sent)


def _failed(row: Row) -> tuple[int, int]:
    """Requests that failed, and all that were sent: by count, or by the errors of single requests."""
    errors = row.get("errors")
    listed = sum(bool(error) for error in errors) if isinstance(errors, list) else 0
    completed = number(row.get("completed"))
    sent = int(
        number(row.get("num_prompts")) or (completed or 0) + (number(row.get("failed")) or 0) or len(errors or [])
    )
    missing = sent - int(completed) if completed is not None else 0
    return max(missing, int(number(row.get("failed")) or 0), listed, 0), sent


def requests(row: Row) -> list[Request]:
    """Single requests, from files with details, without failed ones."""
    columns: list[Any] = [row.get(key) for key in ("ttfts", "itls", "output_lens")]
    if not all(isinstance(column, list) for column in columns):
        return []
    errors = row.get("errors") or [""] * len(row["ttfts"])
    begins = row.get("start_times") or [None] * len(row["ttfts"])
    texts = row.get("generated_texts") or [None] * len(row["ttfts"])
    all_requests = []
    for ttft, itls, tokens, error, begin, text in zip(*columns, errors, begins, texts, strict=False):
        if not error and (first := number(ttft)) and isinstance(itls, list) and number(tokens):
            latency = first + sum(x for itl in itls if (x := number(itl)) is not None)
            kept = text if isinstance(text, str) else None
            all_requests.append(Request(first, latency, int(tokens), number(begin), kept))
    return all_requests


def _stated(row: Row, title: str, settings: dict[str, str], known: set[str]) -> list[Figure]:
    """Statistics in the file, except means and medians that the requests already give."""
    figures = []
    for key, content in row.items():
        match, value = _STATED.fullmatch(key), number(content)
        if match is None or value is None:
            continue
        statistic, metric, scale = match[1], _METRIC[match[2]], 1e-3 if match[3] else 1.0
        if metric in known and not statistic.startswith("p"):
            continue
        spread = number(row.get(f"std_{match[2]}{match[3] or ''}")) if statistic == "mean" else None
        figures.append(
            Figure(
                name=title, metric=f"{statistic} {metric}", unit="s", better="lower", value=scale * value,
                statistic=statistic, parameters=settings, spread=None if spread is None else scale * spread,
                count=int(completed) if (completed := number(row.get("completed"))) else None,
            )
        )  # fmt: skip
    return figures


BENCH_SERVING = Reader(
    "bench-serving", _accepts, _read, "vllm bench serve --save-result --save-detailed (SGLang: --output-details)"
)
