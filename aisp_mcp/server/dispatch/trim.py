"""Make JSON data smaller by one cut: shorter lists, shorter texts, fewer keys, less depth. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_NOTES = 12


@dataclass(frozen=True)
class Cut:
    """Sizes that remain. outer: items of a list that lies in no other list; inner: items of lists within lists.

    text: characters of a text; keys: entries of an object; detail: characters of JSON that one nested part of a list's
    item may have (rows stay, their particulars go); depth: levels.
    """

    outer: int
    inner: int
    text: int
    keys: int
    detail: int = 1 << 40
    depth: int = 100


@dataclass
class Notes:
    """Omissions of a cut, by place; places inside lists are one place, written `rows[*].samples`."""

    said: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, text: str) -> None:
        self.said.setdefault(path, text)
        self.times[path] = self.times.get(path, 0) + 1

    def lines(self) -> list[str]:
        """One line per place, bounded."""
        lines = [f"{path[-120:]}: {text}{self._often(path)}" for path, text in self.said.items()]
        more = len(lines) - MAX_NOTES
        return [*lines[:MAX_NOTES], f"and {more} more places"] if more > 0 else lines

    def _often(self, path: str) -> str:
        return f" (and {self.times[path] - 1} like it)" if self.times[path] > 1 else ""


def trim(value: Any, cut: Cut, path: str, notes: Notes, depth: int = 0, in_list: bool = False) -> Any:
    """The value with the cut applied at every depth; notes are added for everything left out."""
    if isinstance(value, str):
        return _text(value, cut.text, path, notes)
    if isinstance(value, dict | list) and value and depth >= cut.depth:
        notes.add(path, f"{len(value)} entries left out")
        return type(value)()
    if isinstance(value, list):
        return _list(value, cut, path, notes, depth, in_list)
    if isinstance(value, dict):
        return dict(_items(value, cut, path, notes, depth, in_list))
    return value


def _list(value: list[Any], cut: Cut, path: str, notes: Notes, depth: int, in_list: bool) -> list[Any]:
    limit = cut.inner if in_list else cut.outer
    if len(value) > limit:
        notes.add(path, f"{limit} of {len(value)} items")
    return [trim(item, cut, f"{path}[*]", notes, depth + 1, True) for item in value[:limit]]


def _items(
    value: dict[str, Any], cut: Cut, path: str, notes: Notes, depth: int, in_list: bool
) -> Iterator[tuple[str, Any]]:
    if len(value) > cut.keys:
        notes.add(path, f"{cut.keys} of {len(value)} keys")
    for key in list(value)[: cut.keys]:
        name = _text(key, max(cut.text, 20), f"{path} (a key)", notes)
        place = f"{path}.{name[:40]}"
        if in_list and _is_detail(value[key], cut.detail):
            notes.add(place, "left out")
            yield name, None
        else:
            yield name, trim(value[key], cut, place, notes, depth + 1, in_list)


def _is_detail(value: Any, limit: int) -> bool:
    return isinstance(value, dict | list) and len(json.dumps(value, ensure_ascii=False)) > limit


def _text(text: str, limit: int, path: str, notes: Notes) -> str:
    """The beginning and the end: what matters in a log is mostly its end."""
    if len(text) <= limit:
        return text
    notes.add(path, f"{limit} of {len(text)} characters")
    head = limit * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - head - 1) :]}"
