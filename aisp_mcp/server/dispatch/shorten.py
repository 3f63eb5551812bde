"""The last step of every answer: limit its size, list what was omitted, and say where the full answer is.

There are two levels. At the first, every item of an outer list stays, and texts and inner lists get shorter. If that is
not enough, rows become compact (nested parts are dropped), and as many rows stay as fit. Texts outside lists, such as
the answer's sentence, keep what the first level leaves of them. If nothing fits, only the outcome stays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aisp_mcp.envelope import Envelope, ErrorInfo, Truncated
from aisp_mcp.server.context import LOCAL
from aisp_mcp.server.dispatch.envelopes import to_json
from aisp_mcp.settings import Settings

FLOOR, CEILING = 1_500, 32_000  # characters
ANSWERS_KEPT = 200
MAX_NOTES = 12
SHORTEST_TEXT, LONGEST_TEXT = 500, CEILING  # of the first level
DEPTHS = (100, 4, 2)  # of the second level, from the mildest


@dataclass(frozen=True)
class AnswerLimits:
    """Limits of what remains. outer: items of a list that is in no other list; inner: items of lists within lists.

    text: characters of a text; keys: entries of an object; detail: characters of JSON of a nested part of a row, above
    which it is dropped; depth: levels.
    """

    outer: int
    inner: int = 20
    text: int = LONGEST_TEXT
    keys: int = 200
    detail: int = 1 << 40
    depth: int = DEPTHS[0]


def shorten(envelope: Envelope, settings: Settings, principal: str = LOCAL) -> Envelope:
    """The envelope within AISP_MCP_PREVIEW_LIMIT characters of JSON (at least 1,500, at most 32,000).

    Lists longer than AISP_MCP_PREVIEW_ITEMS are always cut. The full answer is stored for the principal, and
    `truncated.how_to_get` says where.
    """
    limit = min(max(settings.preview_limit, FLOOR), CEILING)
    items = settings.preview_items
    full = to_json(envelope)
    if len(full) <= limit and not _has_long_list(envelope.result, items):
        return envelope
    how_to_get = _keep(full, settings.home, principal)

    def largest(low: int, high: int, limits: Callable[[int], AnswerLimits]) -> Envelope | None:
        """The envelope at the largest number whose limits fit."""
        best = None
        while low <= high:
            middle = (low + high + 1) // 2
            shorter = _cut(envelope, limits(middle), how_to_get)
            if len(to_json(shorter)) <= limit:
                best, low = shorter, middle + 1
            else:
                high = middle - 1
        return best

    every_item = AnswerLimits(items, min(20, items))
    if len(to_json(whole := _cut(envelope, replace(every_item, inner=items), how_to_get))) <= limit:
        return whole
    shorter = largest(SHORTEST_TEXT, LONGEST_TEXT, lambda text: replace(every_item, text=text))
    for compact in (AnswerLimits(items, 5, 160, 60, 80, depth) for depth in DEPTHS):
        shorter = shorter or largest(1, items, partial(_with_outer, compact))
    return shorter or _bare(envelope, how_to_get)


def _with_outer(limits: AnswerLimits, outer: int) -> AnswerLimits:
    return replace(limits, outer=outer, inner=min(limits.inner, outer))


@dataclass
class Notes:
    """The omitted parts, by path; paths inside lists are one path, written `rows[*].samples`."""

    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, text: str) -> None:
        self.texts.setdefault(path, text)
        self.counts[path] = self.counts.get(path, 0) + 1

    def lines(self) -> list[str]:
        """One line per path, at most MAX_NOTES, and the number of the others."""
        lines = [
            f"{path[-120:]}: {text}" + (f" (and {self.counts[path] - 1} like it)" if self.counts[path] > 1 else "")
            for path, text in self.texts.items()
        ]
        others = len(lines) - MAX_NOTES
        return [*lines[:MAX_NOTES], f"and {others} more"] if others > 0 else lines


def _cut(envelope: Envelope, limits: AnswerLimits, how_to_get: str) -> Envelope:
    notes = Notes()
    result = _value(envelope.result, limits, "result", notes)
    error = envelope.error and _error(envelope.error, limits, notes)
    nonfinite = envelope.nonfinite and [path[: max(limits.text, 60)] for path in envelope.nonfinite[: limits.outer]]
    return _with(envelope, notes.lines(), how_to_get, result=result, error=error, nonfinite=nonfinite)


def _value(value: Any, limits: AnswerLimits, path: str, notes: Notes, depth: int = 0, in_list: bool = False) -> Any:
    if isinstance(value, str):
        return _text(value, limits.text if in_list else max(limits.text, SHORTEST_TEXT), path, notes)
    if isinstance(value, dict | list) and value and depth >= limits.depth:
        notes.add(path, f"{len(value)} entries left out")
        return type(value)()
    if isinstance(value, list):
        length = limits.inner if in_list else limits.outer
        if len(value) > length:
            notes.add(path, f"{length} of {len(value)} items")
        return [_value(item, limits, f"{path}[*]", notes, depth + 1, True) for item in value[:length]]
    if isinstance(value, dict):
        return dict(_entries(value, limits, path, notes, depth, in_list))
    return value


def _entries(
    value: dict[str, Any], limits: AnswerLimits, path: str, notes: Notes, depth: int, in_list: bool
) -> Iterator[tuple[str, Any]]:
    if len(value) > limits.keys:
        notes.add(path, f"{limits.keys} of {len(value)} keys")
    for key in list(value)[: limits.keys]:
        name = _text(key, max(limits.text, 20), f"{path} (a key)", notes)
        inner, inner_path = value[key], f"{path}.{name[:40]}"
        if in_list and isinstance(inner, dict | list) and len(json.dumps(inner, ensure_ascii=False)) > limits.detail:
            notes.add(inner_path, "left out")
            yield name, None
        else:
            yield name, _value(inner, limits, inner_path, notes, depth + 1, in_list)


def _text(text: str, limit: int, path: str, notes: Notes) -> str:
    """The beginning and the end: in a log, the end usually matters most."""
    if len(text) <= limit:
        return text
    notes.add(path, f"{limit} of {len(text)} characters")
    head = limit * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - head - 1) :]}"


def _error(error: ErrorInfo, limits: AnswerLimits, notes: Notes) -> ErrorInfo:
    """The code always stays. A next step stays whole, or is dropped and counted: a truncated call would be invalid."""
    length = max(limits.text, 200)
    steps = [step for step in error.next_steps if len(step.model_dump_json()) <= length]
    if len(steps) < len(error.next_steps):
        notes.add("error.next_steps", f"{len(steps)} of {len(error.next_steps)} items")
    if len(steps) > limits.outer:
        notes.add("error.next_steps", f"{limits.outer} of {len(steps)} items")
    return ErrorInfo(
        code=error.code[:80],
        message=_text(error.message, length, "error.message", notes),
        hint=error.hint and _text(error.hint, length, "error.hint", notes),
        next_steps=steps[: limits.outer],
        kind=error.kind,
    )


def _bare(envelope: Envelope, how_to_get: str) -> Envelope:
    """The outcome alone."""
    notes = Notes()
    error = envelope.error and _error(envelope.error, AnswerLimits(1, text=200), notes)
    lines = [*notes.lines(), "result: left out"] if envelope.result is not None else notes.lines()
    return _with(envelope, lines, how_to_get, result=None, error=error, nonfinite=None)


def _with(envelope: Envelope, lines: list[str], how_to_get: str, **parts: Any) -> Envelope:
    truncated = Truncated(what=lines, how_to_get=how_to_get) if lines else None
    return envelope.model_copy(update={**parts, "truncated": truncated})


def _has_long_list(value: Any, items: int) -> bool:
    if isinstance(value, list):
        return len(value) > items or any(_has_long_list(item, items) for item in value)
    if isinstance(value, dict):
        return any(_has_long_list(item, items) for item in value.values())
    return False


def kept_in(home: Path, principal: str) -> Path:
    """The folder of a principal's full answers."""
    folder = home / "answers"
    return folder if principal == LOCAL else folder / quote(principal, safe="")


def _keep(full: str, home: Path, principal: str) -> str:
    """Write the full answer, named by its content, and say how to get it; a path is useless to a remote caller."""
    folder = kept_in(home, principal)
    content = full.rpartition(',"meta":')[0]
    path = folder / f"{hashlib.blake2b(content.encode(), digest_size=10).hexdigest()}.json"
    try:
        for made in (home, folder):  # parents that mkdir() makes on the way are open to other users
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        unfinished.touch(mode=0o600)
        unfinished.write_text(full, encoding="utf-8")
        unfinished.replace(path)
        _sweep(folder)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return f"The full answer could not be stored ({reason}): ask for less, or raise AISP_MCP_PREVIEW_LIMIT."
    resource = f"the resource aisp://answers/{path.name}"
    if principal != LOCAL:
        return f"The full answer ({len(content)} characters) is {resource}"
    where = str(path) if len(str(path)) <= 400 else f"answers/{path.name} under AISP_HOME"
    return f"The full answer ({len(content)} characters) is the file {where}, over MCP {resource}"


def _age(path: Path) -> float:
    """Negative age in seconds, so newest first; a file that another process has just removed counts as newest."""
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")


def _sweep(folder: Path) -> None:
    """Delete all but the newest answers."""
    if len(os.listdir(folder)) <= ANSWERS_KEPT:
        return
    with os.scandir(folder) as entries:
        paths = sorted((Path(e.path) for e in entries if e.name.endswith(".json")), key=_age)
    for old in paths[ANSWERS_KEPT:]:
        old.unlink(missing_ok=True)
