"""Messages of a running comparison: each step as it begins, and the time left once its pace is known."""

from __future__ import annotations

import time
from collections.abc import Callable

Report = Callable[[float, float, str], None]  # (done, total, message)
PAUSE_S = 1.0  # between two messages about the same replicate: fast ones need none


class Telling:
    """Tells `report` about one comparison. The steps of a replicate are told where they take long."""

    def __init__(self, label: str, replicates: int, report: Report, clock: Callable[[], float] = time.monotonic):
        self._label, self._report, self._clock = label, report, clock
        self._index, self._total = 0, replicates
        self._begin = self._began = self._timing_from = self._told = clock()

    def prepare(self, what: str) -> None:
        """Tell what is done before the first replicate."""
        self._say(0.0, what)

    def begin(self, replicates: int) -> None:
        """The first replicate starts its processes."""
        self._total, self._begin = replicates, self._clock()
        self._say(0.0, "starting both programs")

    def replicate(self, index: int) -> None:
        """A replicate begins. index: from 0."""
        self._index, self._began = index, self._clock()
        self._timing_from = self._began
        self._say(0.0, self._place, self._left_s(0.0))

    def step(self, what: str, share: float = 0.0) -> None:
        """A step of the replicate begins. share: of its timed rounds that have ended."""
        if not share:
            self._timing_from = self._clock()
        if self._clock() - self._told >= PAUSE_S:
            self._say(share, f"{self._place}: {what}", self._left_s(share))

    def judging(self) -> None:
        """All replicates have ended."""
        self._index, self._began = self._total, self._clock()
        self._say(0.0, "judging")

    @property
    def _place(self) -> str:
        return f"replicate {self._index + 1} of {self._total}"

    def _left_s(self, share: float) -> float | None:
        """Seconds that the rest takes: at the pace of the replicates that have ended, or of this one's rounds."""
        now = self._clock()
        if self._index:
            each_s = (self._began - self._begin) / self._index
        elif share:
            each_s = self._timing_from - self._began + (now - self._timing_from) / share
        else:
            return None
        return max(0.0, each_s * (self._total - self._index) - (now - self._began))

    def _say(self, share: float, what: str, left_s: float | None = None) -> None:
        self._told = self._clock()
        left = "" if left_s is None else f", about {left_s:.0f} s left"
        self._report(min(self._index + share, self._total), self._total, f"{self._label}: {what}{left}")
