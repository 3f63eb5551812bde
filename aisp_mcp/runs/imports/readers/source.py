"""A file to read, parsed once, and the interface of readers."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from aisp_mcp.runs.imports.records import Contents, Figure
from aisp_mcp.server.text.escape import visible

MAX_NAME = 300
_JSON = re.compile(r"^[\[{]", re.M)
_CANDIDATES = 20  # lines of a log can begin with a bracket too
MAX_SAMPLES = 5000  # per figure; more are thinned evenly, which only widens an interval


@dataclass(frozen=True)
class Source:
    """A file's text, and its forms; a form is None if the text does not have it."""

    path: Path
    text: str

    @cached_property
    def document(self) -> Any:
        if self.text.lstrip()[:1] not in ("{", "["):
            return self._after_log
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def _after_log(self) -> Any:
        """The one JSON value below lines of a log, as where a tool's two outputs went to one file."""
        for start in islice(_JSON.finditer(self.text), _CANDIDATES):
            try:
                value, end = json.JSONDecoder().raw_decode(self.text, start.start())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, list | dict) and value and _JSON.search(self.text, end) is None:
                return value
        return None

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """JSON objects: one for each line, those of an array, or the only one."""
        if isinstance(self.document, dict):
            return [self.document]
        if isinstance(self.document, list):
            return [row for row in self.document if isinstance(row, dict)]
        rows = []
        for line in self.text.splitlines():
            if line.startswith("{"):
                try:
                    rows.append(json.loads(line))
                except (ValueError, RecursionError):
                    return []
        return [row for row in rows if isinstance(row, dict)]

    @cached_property
    def table(self) -> list[dict[str, str]]:
        """Rows of a CSV file by its header."""
        try:
            return [row for row in csv.DictReader(self.text.splitlines()) if None not in row]
        except csv.Error:
            return []

    def get(self, *keys: str) -> Any:
        """A value deep in the JSON object, or None."""
        value = self.document
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True)
class Reader:
    """format: its name in answers. accepts: whether a file is of this format. raw: how to make files with samples."""

    format: str
    accepts: Callable[[Source], bool]
    read: Callable[[Source], Contents]
    raw: str


def number(value: Any) -> float | None:
    """A finite number, also if written as text; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def numbers(values: Any, scale: float = 1.0) -> list[float]:
    """Finite numbers of a list, scaled, thinned evenly above MAX_SAMPLES."""
    results = [scale * x for value in values if (x := number(value)) is not None] if isinstance(values, list) else []
    step = max(1, math.ceil(len(results) / MAX_SAMPLES))
    return results[::step]


def name(value: Any) -> str:
    """A name from a file, made safe to display."""
    return visible(str(value)).replace("\n", " ")[:MAX_NAME]


def parameters(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, str]:
    """The given ones of these settings, as text."""
    return {key: name(values[key]) for key in keys if values.get(key) is not None and values[key] != ""}


def utc(text: Any, *formats: str) -> float | None:
    """UTC seconds of an ISO date or one in these formats; a date without a zone counts as UTC."""
    if not isinstance(text, str):
        return None
    for form in (None, *formats):
        try:
            moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except ValueError:
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def time_figure(title: str, value: float, statistic: str, **more: Any) -> Figure:
    """Seconds of one benchmark; lower is better."""
    return Figure(name=title, metric="time", unit="s", better="lower", value=value, statistic=statistic, **more)


def left_out(count: int, why: str) -> list[str]:
    """A note about figures that were not read; empty if there are none."""
    return [f"{count} left out: {why}."] if count else []
