"""The number that a run is judged by: its time, its CPU time or its memory, or what the program printed or wrote."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aisp_mcp.errors import UsageError

MEASURED = ("time", "cpu", "memory")
NAME = re.compile(r"[A-Za-z_][\w./@-]*")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)"
RULE = re.compile(rf"\s*({NAME.pattern})\s*(>=|<=|==|>|<)\s*({NUMBER})\s*", re.IGNORECASE)
COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
LARGEST = 64_000_000  # bytes read of an output
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # and other sequences that a terminal does not show
_TIMES = "ns|[uµμ]s|ms|s|secs?|seconds?|mins?|minutes?|h|hours?"
_UNITS = rf"(?:{_TIMES}|[kKMGT]?i?B|bytes?|%|[kKMG])(?:/[A-Za-z]+)?|[A-Za-z]+/(?:{_TIMES})"
UNIT = re.compile(rf"[ \t]?({_UNITS})(?![\w/])")
SPELT = {"sec": "s", "second": "s", "minute": "min", "hour": "h", "µs": "us", "μs": "us", "byte": "B"}
# What continues a number after the end of a match, and what stands before one that begins in its middle.
REST = re.compile(r"\d|[.,_'\u00a0\u2009\u202f]\d|[eE][-+]?\d")
START = re.compile(r"\d\.?$|(?:^|[\s=:(,])[-−.]$")


class Unreadable(Exception):
    """A run has no such number. The message is a sentence for the user."""


class Found(NamedTuple):
    """A number as it is written, and where. unit: written after it, empty without one. is_part: of a longer number."""

    text: str
    line: int
    unit: str = ""
    is_part: bool = False


@dataclass(frozen=True)
class Metric:
    """text: as the user gave it. pattern: None for a name. units: of the numbers read so far, which must agree."""

    text: str
    pattern: re.Pattern[str] | None = None
    units: set[str] = field(default_factory=set, compare=False, repr=False)

    @property
    def is_measured(self) -> bool:
        return self.text in MEASURED

    def read(self, file: Path, shown: str) -> float:
        """The number in an output. shown: how the user calls that file. Raises Unreadable."""
        with file.open("rb") as opened:
            text = COLOURS.sub("", opened.read(LARGEST).decode("utf-8", "replace"))
        found = list(_by_pattern(self.pattern, text) if self.pattern else _by_name(self.text, text))
        if not found:
            what = f"--metric {self.text!r}" if self.pattern else f"a number named {self.text}"
            last = (text.strip().splitlines() or ["nothing"])[-1][:120]
            raise Unreadable(f"{shown} has no match for {what}; its last line: {last}")
        hint = ". Put parentheses around the number in --metric" if self.pattern and not self.pattern.groups else ""
        numbers = {_number(item, shown, hint): item for item in found}
        if len(numbers) > 1:
            (_, first), *_, (_, last_one) = numbers.items()
            raise Unreadable(
                f"{shown} has {len(numbers)} different numbers for {self.text!r}, such as {first.text} in line "
                f"{first.line} and {last_one.text} in line {last_one.line}. Match one of them"
            )
        self._refuse_part(found, text, shown)
        self._refuse_another_unit(found[0].unit, shown)
        return next(iter(numbers))

    def _refuse_part(self, found: list[Found], text: str, shown: str) -> None:
        if part := next((item for item in found if item.is_part), None):
            line = text.split("\n")[part.line - 1].strip()[:120]
            raise Unreadable(
                f"{self.text!r} takes {part.text}, which is only a part of the number in line {part.line} of {shown}: "
                f"{line}. Match the whole number; print it without commas"
            )

    def _refuse_another_unit(self, unit: str, shown: str) -> None:
        self.units.add(unit)
        if len(self.units) > 1:
            first, second = (f"in {word}" if word else "without a unit" for word in sorted(self.units)[::-1])
            raise Unreadable(
                f"{shown} gives {self.text!r} {first} in one run and {second} in another. Always print the same unit"
            )


@dataclass(frozen=True)
class Rule:
    """A condition that a candidate must meet."""

    text: str
    metric: Metric
    compare: str
    bound: float

    def holds(self, value: float) -> bool:
        return bool(COMPARE[self.compare](value, self.bound))


def metric(text: str) -> Metric:
    """The metric of an argument. Raises UsageError BAD_METRIC."""
    if NAME.fullmatch(text):
        return Metric(text)
    hint = "Such as 'val_loss: ([0-9.]+)', or a name such as val_loss, time, cpu or memory."
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError("BAD_METRIC", f"{text!r} is no regular expression: {error}.", hint) from error
    if pattern.groups > 1:
        raise UsageError("BAD_METRIC", f"{text!r} has {pattern.groups} groups; one is the number.", hint)
    return Metric(text, pattern)


def rule(text: str) -> Rule:
    """The condition of an argument. Raises UsageError BAD_RULE."""
    match = RULE.fullmatch(text)
    if match is None:
        raise UsageError("BAD_RULE", f"{text!r} is not a condition.", "Such as 'acc >= 0.93'.")
    name, compare, bound = match.groups()
    return Rule(text, Metric(name), compare, float(bound))


def _by_pattern(pattern: re.Pattern[str], text: str) -> Iterator[Found]:
    for match in pattern.finditer(text):
        group = match.group(pattern.groups)
        if group is not None:
            start, end = match.span(pattern.groups)
            is_part = bool(START.search(text[max(start - 2, 0) : start])) or (
                match.end() == end and REST.match(text, end) is not None
            )
            yield Found(group.strip(), 1 + text.count("\n", 0, start), _unit(text, end), is_part)


def _unit(text: str, at: int) -> str:
    """The unit that follows there, spelt in one way; empty without one."""
    found = UNIT.match(text, at)
    word = found[1] if found else ""
    singular = word.removesuffix("s") if len(word) > 2 and "/" not in word else word
    return SPELT.get(singular, singular)


def _by_name(name: str, text: str) -> Iterator[Found]:
    """The field of that name in JSON (the whole text, or lines of it), else `NAME: NUMBER` and `NAME = NUMBER`."""
    documents = [(1, text)] if text.lstrip().startswith(("{", "[")) else []
    documents += [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("{")]
    in_json = []
    for line, document in documents:
        try:
            value = _field(json.loads(document), name)
        except ValueError:
            continue
        if value is not None:
            in_json.append(Found(str(value), line))
    if in_json:
        yield from in_json
        return
    end = rf"(?:(?![\w.])|(?=(?:{_UNITS})(?![\w/])))"  # of the number: a unit may follow it at once
    quoted = re.compile(rf"(?<![\w.]){re.escape(name)}\"?\s*[:=]\s*({NUMBER}){end}", re.IGNORECASE)
    yield from _by_pattern(quoted, text)


def _field(document: Any, name: str) -> Any:
    """A field by its name, or by a path with dots."""
    if isinstance(document, dict) and name in document:
        return document[name]
    for part in name.split("."):
        if isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return None
    return document


def _number(found: Found, shown: str, hint: str) -> float:
    try:
        value = float(found.text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Unreadable(f"{found.text!r} in line {found.line} of {shown} is not a number{hint}")
    return value
