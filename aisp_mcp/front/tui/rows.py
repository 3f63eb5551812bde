"""Lines of the lists, and what the first frame knows before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

PRESETS = ("quick", "default", "release")
JOB_COLUMNS = (("state", 10), ("tool", 24), ("progress", 30), ("age", 7))
VERDICT_COLUMNS = (("verdict", 12), ("target", 24), ("ratio (interval)", 21), ("floor", 7), ("age", 6))


@dataclass(frozen=True)
class Row:
    """One line of a list. key: what `describe_*` is asked with. active: it goes on, and can be ended."""

    key: str
    cells: tuple[Text, ...]
    active: bool = False
