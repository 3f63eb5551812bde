"""Records as plain JSON data: no NaN, no infinity, no text that cannot be encoded."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel

MAX_PATHS = 20


def plain(value: Any) -> tuple[Any, list[str]]:
    """JSON data of a record, and the paths of numbers that were NaN or infinite and became null.

    Raises pydantic's PydanticSerializationError for a value that has no JSON form, which is a bug of the tool.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    paths: list[str] = []
    clean = _clean(value, "", paths)
    if len(paths) > MAX_PATHS:
        paths = [*paths[:MAX_PATHS], f"and {len(paths) - MAX_PATHS} more"]
    return clean, paths


def _clean(value: Any, path: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        return {_text(str(k)): _clean(v, f"{path}.{k}" if path else str(k), paths) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, f"{path}[{i}]", paths) for i, item in enumerate(value)]
    if isinstance(value, BaseModel):
        return _clean(value.model_dump(mode="json"), path, paths)
    if isinstance(value, float) and not math.isfinite(value):
        paths.append(_text(path))
        return None
    if isinstance(value, str):
        return _text(value)
    return value


def _text(text: str) -> str:
    """Replace lone surrogates: file names may contain bytes that are not UTF-8, JSON must not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
