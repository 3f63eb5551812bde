"""What a job may ask the person it works for, and what came back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.model.base import Record


class Question(Record):
    """A form. fields: JSON Schemas of its entries by name, flat: text, numbers, booleans and choices."""

    message: str
    fields: dict[str, dict[str, Any]]
    required: list[str] = Field(default_factory=list)


class Reply(Record):
    """What the person did with the form; content: their entries, when they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
