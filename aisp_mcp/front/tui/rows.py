"""Rows and columns of the lists, which the first frame needs before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

PRESETS = ("quick", "default", "release")
JOB_COLUMNS = (("state", 10), ("tool", 24), ("progress", 30), ("age", 7))
VERDICT_COLUMNS = (("verdict", 14), ("target", 19), ("ratio (interval)", 25), ("floor", 6), ("age", 6))


@dataclass(frozen=True)
class ListRow:
    """A row of a list. key: argument of `describe_*`. active: a job that has not ended and can be cancelled."""

    key: str
    cells: tuple[Text, ...]
    active: bool = False
