"""Sources of facts: how a row of a table is cited."""

from __future__ import annotations

from typing import Protocol

UNVERIFIED = "unverified"  # in place of a source: none was found for any field of the row


class Sourced(Protocol):
    """A row of facts. unverified: its fields for which no source was found."""

    @property
    def source(self) -> str: ...
    @property
    def unverified(self) -> list[str]: ...


def cite(row: Sourced) -> str:
    """The row's source, and the fields that it does not cover."""
    return f"{row.source}; unverified: {', '.join(row.unverified)}" if row.unverified else row.source
