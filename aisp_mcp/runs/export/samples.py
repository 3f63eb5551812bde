"""The raw rounds of a run, read from its logs and checked against the record's hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from aisp_mcp.errors import AispError, Unavailable
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.records import Record
from aisp_mcp.store.records.run import Run

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
