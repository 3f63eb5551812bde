"""A run as CSV and JSON: every column of every comparison, skip and failure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.export.samples import Sample
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites.records import Grade

_RUN_COLUMNS = ("run_id", "created_at", "kind", "preset", "profile", "row")
_MARKS = ("at_least", "provisional")
_PROOF_COLUMNS = (
    "candidate", "mark", "verdict", "ratio", "ratio_low", "ratio_high",
    "expected", "expected_low", "expected_high", "source", "device", "why",
)  # fmt: skip
_PROBLEM_COLUMNS = ("code", "message", "hint")


def to_json(run: Run, samples: Sequence[Sample] | None = None) -> bytes:
    """The run's own record; samples are under a second key. Non-finite numbers are null."""
    body: dict[str, Any] = {"run": run.model_dump(mode="json")}
    if samples is not None:
        body["samples"] = [sample.model_dump() for sample in samples]
    return json.dumps(_finite(body), indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def to_csv(run: Run) -> bytes:
    """One row per comparison, skip and failure (column `row`); nested fields are dotted columns, lists are JSON."""
    columns = comparison_columns()
    about = [run.id, run.created_at, run.kind.value, run.preset, run.profile]
    unmarked, empty = [None] * len(_MARKS), [None] * len(_PROBLEM_COLUMNS)
    rows = []
    for comparison in run.comparisons:
        marks = [comparison.at_least, run.is_provisional(comparison)]
        rows.append([*about, "comparison", *(_pick(comparison, name) for name in columns), *marks, *empty])
    for skip in run.skipped:
        problem = [skip.code, skip.missing, None]
        rows.append([*about, "skipped", *_only(columns, skip.target), *unmarked, *problem])
    for failure in run.failed:
        problem = [failure.code, failure.message, failure.hint]
        rows.append([*about, "failed", *_only(columns, failure.target), *unmarked, *problem])
    return _csv([*_RUN_COLUMNS, *columns, *_MARKS, *_PROBLEM_COLUMNS], rows)


def proof_csv(run: Run, grades: Sequence[Grade]) -> bytes:
    """One row per candidate of a run: its mark, the measurement, the expectation and its source."""
    rows = []
    for grade in grades:
        low, high = grade.interval or (None, None)
        measured = [grade.candidate, grade.mark, grade.verdict, grade.ratio, low, high]
        rows.append([*measured, grade.expected, *(grade.range or (None, None)), grade.source, grade.device, grade.why])
    return _csv(["run_id", *_PROOF_COLUMNS], ([run.id, *row] for row in rows))


def samples_csv(run: Run, samples: Sequence[Sample]) -> bytes:
    """One row per timed call."""
    columns = list(Sample.model_fields)
    rows = ([run.id, *(getattr(sample, column) for column in columns)] for sample in samples)
    return _csv(["run_id", *columns], rows)


def comparison_columns() -> list[str]:
    """Dotted names of all fields of a comparison, derived from the record itself, so that none can be forgotten."""
    return list(_columns(Comparison))


def _columns(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, field in model.model_fields.items():
        nested = _nested(field.annotation)
        if nested is None:
            yield prefix + name
        else:
            yield from _columns(nested, f"{prefix}{name}.")


def _nested(annotation: Any) -> type[BaseModel] | None:
    """The record inside `X` or `X | None`; lists and plain values are columns themselves."""
    options = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _pick(record: Any, column: str) -> Any:
    for part in column.split("."):
        record = getattr(record, part) if record is not None else None
    if isinstance(record, list):
        record = [item.model_dump(mode="json") if isinstance(item, BaseModel) else item for item in record]
    if isinstance(record, list | dict):
        return json.dumps(_finite(record), ensure_ascii=False) if record else None
    return getattr(record, "value", record)


def _only(columns: Sequence[str], target: str) -> list[str | None]:
    return [target if column == "target" else None for column in columns]


def _csv(header: list[str], rows: Iterable[list[Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe; numbers stay numbers."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value
