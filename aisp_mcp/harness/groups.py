"""Number of ranks of a target, and the cores that they need. The file is read, not run."""

from __future__ import annotations

import os
from pathlib import Path

from aisp_mcp.harness import sizes, source_facts


def ranks(baseline: Path, size: str) -> int:
    """Processes of each side: 1 but for a specification of several, whose number a size may replace."""
    given = source_facts.read(baseline.read_bytes(), baseline.suffix, baseline=True).needs.get("ranks", 1)
    asked = sizes.read(size).values.get("ranks", given) if given != 1 else 1
    return int(asked) if isinstance(asked, int) else 1


def lacks(ranks: int) -> str:
    """The cores that so many ranks lack, in words; empty when each has one of its own."""
    found = len(os.sched_getaffinity(0))
    return f"{ranks} cores for {ranks} ranks, found {found}" if ranks > 1 and found < ranks else ""
