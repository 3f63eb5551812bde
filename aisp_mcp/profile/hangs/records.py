"""Records of each rank's calls, from dumps and logs, and of the waits between ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.profile.records import Source, Statement
from aisp_mcp.records import Record

Reason = Literal["no call", "not finished", "queued", "no dump", "other call"]


class Call(Record):
    """A call that has not completed. number: its position among the calls of its group, or of a pair for
    send and recv.
    """

    group: str
    number: int
    operation: str
    peers: tuple[int, int] | None = Field(default=None, description="Of a send or recv: the two ranks.")
    elements: int | None = None
    state: str = "scheduled"


class Dump(Record):
    """The calls of one rank, pending ones in their order. completed: the last such call per group."""

    rank: int
    records: int
    pending: list[Call]
    completed: dict[str, int] = Field(default_factory=dict)
    groups: dict[str, list[int]] = Field(default_factory=dict, description="Members by name, where they are known.")


class Wait(Record):
    """Ranks that are stuck in one call, and those that it waits for. group: name, with its members if known."""

    waiting: list[int]
    awaited: list[int]
    operation: str
    group: str
    number: int
    reason: Reason = Field(
        description="no call: none of this number. not finished: one before it in the group. queued: behind another."
    )


class Hang(Record):
    """held_up_by: ranks that others wait for, and that wait for none themselves. held_up: ranks that wait for them."""

    source: Source
    ranks: int
    held_up_by: list[int] = Field(default_factory=list)
    held_up: list[int] = Field(default_factory=list)
    waits: list[Wait] = Field(default_factory=list)
    opening: list[Statement] = Field(default_factory=list)
    diagnostics: list[str] = Field(default_factory=list)
