"""Wall seconds of a comparison by phase."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class PhaseTimer:
    """Wall seconds by phase; their sum never exceeds the elapsed time."""

    seconds: Counter[str] = field(default_factory=Counter)
    _inside: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the wall time of the block towards a phase; a nested block counts towards the outer phase."""
        if self._inside:
            yield
            return
        begin, self._inside = time.monotonic(), True
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begin  # type: ignore[assignment]
            self._inside = False
