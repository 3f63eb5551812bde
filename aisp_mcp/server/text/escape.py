"""Make text from outside safe to display."""

from __future__ import annotations


def visible(text: object) -> str:
    """Control characters and those that change direction become visible: a name must not reorder its line."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in str(text))


def short(name: str, most: int) -> str:
    """The beginning and the end of a long name: variants differ at the end."""
    if len(name) <= most:
        return name
    head = (most - 1) * 3 // 5
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"
