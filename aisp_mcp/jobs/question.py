"""Question of a job to the person it works for, and the reply."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.records import Record


class Question(Record):
    """A form. fields: JSON Schemas of its entries by name, flat: text, numbers, booleans and choices."""

    message: str
    fields: dict[str, dict[str, Any]]
    required: list[str] = Field(default_factory=list)


class Reply(Record):
    """Reply of the person to the form; content: their entries, when they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
