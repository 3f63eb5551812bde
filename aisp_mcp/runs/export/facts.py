"""Nested facts as rows of text."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 400


def environment_rows(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """A manifest as (dotted name, value) in its own order, without unreadable values."""
    return [(name, _say(value)) for name, value in _flat(environment, "") if value not in (None, "", [], {})]


def _flat(value: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        items = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        items = [(f"{name}[{index}]", item) for index, item in enumerate(value)]
    else:
        return [(name, value)]
    return [row for key, item in items for row in _flat(item, key)]


def _say(value: Any) -> str:
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
