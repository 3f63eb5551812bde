"""The pair to compare: one baseline and one candidate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


def source_text(path: Path) -> str:
    """The text of a program; empty for a compiled library, and if there is no such file."""
    return path.read_text("utf-8", errors="replace") if path.is_file() and path.suffix != ".so" else ""


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

    def files(self) -> dict[str, Path]:
        """Files of the pair, including what both share, by their names in a run's folder."""
        folder = Path("sources", self.label.replace(":", "-").replace("/", "-"))
        common = self.baseline.with_name("_common.py")
        shared = {str(folder / common.name): common} if common.is_file() else {}
        return {str(folder / "baseline.py"): self.baseline, str(folder / "candidate.py"): self.path, **shared}

    def sources(self) -> dict[str, str]:
        """SHA-256 of these files as they are now, by those names."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.files().items()}
