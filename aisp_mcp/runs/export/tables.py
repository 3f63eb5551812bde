"""A run as CSV and JSON: every column of every comparison, skip and failure, and the raw rounds if asked for.

Raw rounds are read from the run's logs and checked against the record's hashes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from aisp_mcp.errors import AispError, Unavailable
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.records import Record
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


NAMES = {Role.BASELINE: "baseline", Role.BASELINE_REPEAT: "baseline_again", Role.CANDIDATE: "optimized"}
ROLES_BY_NUMBER = tuple(Role)  # logs of earlier versions have numbers for roles


class Sample(Record):
    """One timed call. duration_ns: on the worker's own clock. round_s: the parent's clock over the whole round."""

    target: str
    candidate: str
    replicate: int
    turn: int
    side: str
    call: int
    duration_ns: int
    round_s: float
    round_calls: int


def read_samples(run: Run, folder: Path) -> list[Sample]:
    """Every sample of every comparison, in the order they were taken.

    Raises Unavailable NO_SAMPLES if a log is gone, AispError LOG_CHANGED if it is not the one that was judged.
    """
    return [sample for comparison in run.comparisons for sample in _comparison(comparison, folder)]


def _comparison(comparison: Comparison, folder: Path) -> Iterator[Sample]:
    for number, line in enumerate(_lines(comparison, folder), 1):
        try:
            record = json.loads(line)
            if record["kind"] == "round":
                yield from _round(comparison, record)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise AispError(
                "LOG_CHANGED", f"Line {number} of the log of {comparison.target} is not a record."
            ) from error


def _lines(comparison: Comparison, folder: Path) -> list[str]:
    """The log's lines, after verifying their hash chain up to the head in the record."""
    if comparison.log_path is None:
        return []  # nothing was measured: the comparison ended before its first round
    path = folder / Path(comparison.log_path).name  # a stored path may come from another machine
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(
            "NO_SAMPLES",
            f"The raw log {path.name} of {comparison.target} cannot be read.",
            "It may have been cleaned; export without samples.",
        ) from error
    head = "0" * 64
    for number, line in enumerate(lines, 1):
        if f'"prev":"{head}"' not in line:
            raise AispError("LOG_CHANGED", f"{path.name}, line {number}, does not follow from the previous line.")
        head = hashlib.sha256(line.encode()).hexdigest()
    if head != comparison.log_sha256:
        raise AispError("LOG_CHANGED", f"{path.name} is not the log that was judged: its hash differs.")
    return lines


def _round(comparison: Comparison, record: dict[str, object]) -> Iterator[Sample]:
    durations, role_name = record["durations_ns"], record["side"]
    assert isinstance(durations, list)
    role = ROLES_BY_NUMBER[role_name] if isinstance(role_name, int) else Role(str(role_name))
    for call, duration in enumerate(durations):
        yield Sample(
            target=comparison.target,
            candidate=comparison.candidate,
            replicate=record["replicate"],
            turn=record["turn"],
            side=NAMES[role],
            call=call,
            duration_ns=duration,
            round_s=record["elapsed_s"],
            round_calls=len(durations),
        )
