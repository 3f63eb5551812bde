"""MLPerf: logs of training (:::MLLOG), and LoadGen's summary and detail logs of inference."""

from __future__ import annotations

import json
import re
from typing import Any

from aisp_mcp.runs.imports.readers.source import Reader, Source, name, number, numbers, time_figure
from aisp_mcp.runs.imports.records import Contents, Figure

_MARK = ":::MLLOG"
_SUMMARY = "MLPerf Results Summary"
_LINE = re.compile(r"^\s*([\w .%/()]+?)\s*:\s*(\S+)\s*$", re.MULTILINE)
_PERCENTILE = re.compile(r"(?:result_)?(\d+(?:\.\d+)?)(?:th)?[_ ]percentile[_ ]latency[_ ]\(?ns\)?")
_RATES = {
    "Samples per second": "throughput", "result_samples_per_second": "throughput",
    "Completed samples per second": "completed throughput", "result_completed_samples_per_sec": "completed throughput",
    "Tokens per second": "token throughput", "result_tokens_per_second": "token throughput",
    "result_completed_tokens_per_second": "completed token throughput",
    "Completed tokens per second": "completed token throughput",
    "Scheduled samples per second": "scheduled throughput",
}  # fmt: skip
_STEPS = {"throughput": ("throughput", "samples/s"), "train_step_time": ("step time", "s")}


def _accepts(source: Source) -> bool:
    return _SUMMARY in source.text or any(
        key in source.text for key in ('"key": "run_stop"', '"key": "run_start"', '"key": "result_validity"')
    )


def _read(source: Source) -> Contents:
    if _SUMMARY in source.text:
        return _summary(source.text)
    events = _events(source.text)
    return _detail(events) if any(event["key"] == "result_validity" for event in events) else _training(events)


def _events(text: str) -> list[dict[str, Any]]:
    events = []
    for line in text.splitlines():
        _, mark, body = line.partition(_MARK)
        if mark:
            try:
                event = json.loads(body[body.index("{") :])
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("key"), str):
                events.append(event)
    return events


def _training(events: list[dict[str, Any]]) -> Contents:
    """Time from run_start to run_stop, and the step times or rates that the log tracks."""
    first = {event["key"]: event for event in reversed(events)}
    last = {event["key"]: event for event in events}
    title = _value(first, "submission_benchmark") or "training"
    begin, end = number(first.get("run_start", {}).get("time_ms")), number(last.get("run_stop", {}).get("time_ms"))
    figures, notes = list[Figure](), list[str]()
    status = (last.get("run_stop", {}).get("metadata") or {}).get("status")
    if begin is not None and end is not None:
        figures.append(time_figure(title, (end - begin) / 1000, "total").model_copy(update={"metric": "time to train"}))
    if status not in (None, "success"):
        notes.append(f"The run ended with status {name(status)!r}: its time is not a time to the target quality.")
    elif end is None:
        notes.append("The log has no run_stop: the run did not end.")
    figures += _tracked(title, events)
    if notes:
        figures = [figure.model_copy(update={"failed": notes[0].partition(":")[0].rstrip(".")}) for figure in figures]
    words = [word for key in ("submission_org", "submission_platform") if (word := _value(first, key))]
    return Contents(
        figures=figures, machine=", ".join(words) or None, measured_at=begin / 1000 if begin else None, notes=notes
    )


def _value(events: dict[str, dict[str, Any]], key: str) -> str | None:
    value = events.get(key, {}).get("value")
    return None if value is None else name(value)


def _tracked(title: str, events: list[dict[str, Any]]) -> list[Figure]:
    figures = []
    stats = [event["value"] for event in events if event["key"] == "tracked_stats" and isinstance(event["value"], dict)]
    for key, (metric, unit) in _STEPS.items():
        values = numbers([row[key] for row in stats if key in row])
        if values:
            middle = sorted(values)[len(values) // 2]
            figures.append(
                Figure(
                    name=title, metric=metric, unit=unit, better="lower" if unit == "s" else "higher", value=middle,
                    statistic="median", samples=values, sample_of="logged interval", count=len(values),
                )
            )  # fmt: skip
    return figures


def _detail(events: list[dict[str, Any]]) -> Contents:
    """LoadGen's detail log."""
    values = {event["key"]: event.get("value") for event in events}
    scenario = values.get("effective_scenario") or values.get("requested_scenario")
    rows = {key: value for key, value in values.items() if key.startswith("result_")}
    return _inference(rows, values.get("sut_name"), scenario, values.get("result_validity"))


def _summary(text: str) -> Contents:
    """LoadGen's summary log. A text with several summaries gives the figures of each."""
    parts = [_section(part) for part in text.split(_SUMMARY)[1:]]
    return Contents(
        figures=[figure for part in parts for figure in part.figures],
        notes=[note for part in parts for note in part.notes],
    )


def _section(text: str) -> Contents:
    rows = dict[str, str]()
    for key, value in _LINE.findall(text):
        rows.setdefault(key, value)  # parameters of the test come after its results
    return _inference(rows, rows.get("SUT name"), rows.get("Scenario"), rows.get("Result is"))


def _inference(rows: dict[str, Any], sut: Any, scenario: Any, validity: Any) -> Contents:
    settings = {"scenario": name(scenario)} if scenario else {}
    figures = []
    for key, content in rows.items():
        value, match = number(content), _PERCENTILE.fullmatch(key.strip())
        if value is None:
            continue
        if key in _RATES:
            figures.append(_figure(sut, _RATES[key], f"{_unit(key)}/s", value, "total", settings))
        elif match:
            share = f"p{float(match[1]):g}"
            figures.append(_figure(sut, f"{share} latency", "s", value / 1e9, share, settings))
    notes = [] if validity == "VALID" else [f"LoadGen calls the result {name(validity or 'incomplete')}."]
    if notes:
        figures = [figure.model_copy(update={"failed": notes[0].rstrip(".")}) for figure in figures]
    return Contents(figures=figures, notes=notes)


def _unit(key: str) -> str:
    return "tokens" if "oken" in key else "samples"


def _figure(sut: Any, metric: str, unit: str, value: float, statistic: str, settings: dict[str, str]) -> Figure:
    return Figure(
        name=name(sut or "inference"), metric=metric, unit=unit, better="lower" if unit == "s" else "higher",
        value=value, statistic=statistic, parameters=settings,
    )  # fmt: skip


MLPERF = Reader("mlperf", _accepts, _read, "several runs of the benchmark, each with its own log")
