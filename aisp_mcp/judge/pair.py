"""The pair to compare: one baseline and one candidate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """Baseline and candidate: names for the reader, files for the processes."""

    target: str
    baseline: Path
    candidate: str
    path: Path

    @property
    def label(self) -> str:
        return f"{self.target}_{self.candidate}" if self.candidate else self.target
