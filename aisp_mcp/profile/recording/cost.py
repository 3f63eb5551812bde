"""The cost of recording: pairs of runs of one program, with and without the recorder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import AispError
from aisp_mcp.judge.statistics import UnusableError, t_interval
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import Statement
from aisp_mcp.records import Record

CostPolicy = Literal["auto", "always", "never"]
Again = Callable[[bool], float]  # with the recorder or without → seconds of the program
SHORT_S, EXTRA_S, PAIRS = 10.0, 20.0, 3


class RecordingCost(Record):
    """Time of the program with the recorder, divided by its time without. Empty if it was not measured."""

    ratio: float | None = Field(default=None, description="Geometric mean over the pairs.")
    interval: tuple[float, float] | None = Field(default=None, description="95 % t interval, from two pairs on.")
    recorded_s: list[float] = Field(default_factory=list, description="The first is that of the kept recording.")
    plain_s: list[float] = Field(default_factory=list)
    timed: str = Field(description="What the seconds are of.")
    sentence: str

    @property
    def statement(self) -> Statement:
        return Statement(text=self.sentence, rows=["cost.ratio"])


def measure(policy: CostPolicy, first_s: float, whole_s: float, again: Again, timed: str) -> RecordingCost | None:
    """Run the program in turn without and with the recorder; None for never.

    auto: only if the recording was short, and as many pairs as its time allows. first_s: of the program in the kept
    recording. whole_s: of that recording with its start and end.
    """
    if policy == "never":
        return None
    if policy == "auto" and whole_s > SHORT_S:
        text = (
            f"The cost of recording was not measured, since the recording took {whole_s:.3g} s: cost=always runs the "
            "program without the recorder as well."
        )
        return RecordingCost(timed=timed, sentence=text)
    recorded, plain, begin = [first_s], [], time.monotonic()
    try:
        plain.append(again(False))
        while len(plain) < PAIRS and (policy == "always" or time.monotonic() - begin + 2 * whole_s < EXTRA_S):
            seconds = again(True)
            plain.append(again(False))
            recorded.append(seconds)
    except AispError as error:
        if not plain:
            text = f"The cost of recording is unknown: the program failed without the recorder. {error.message}"
            return RecordingCost(timed=timed, sentence=clean(text, 400))
        recorded, plain = recorded[: len(plain)], plain[: len(recorded)]
    return concluded(recorded, plain, timed)


def concluded(recorded: list[float], plain: list[float], timed: str) -> RecordingCost:
    """The ratio of the pairs, and whether it differs from 1."""
    logs = [math.log(with_s / without_s) for with_s, without_s in zip(recorded, plain, strict=True)]
    ratio, interval = math.exp(sum(logs) / len(logs)), None
    times = f"with the recorder, {timed} took {ratio:.3g} times as long as without"
    try:
        mean = t_interval(logs)
        low, high = interval = math.exp(mean.low), math.exp(mean.high)
        pairs = f"95 % interval {low:.3g} to {high:.3g}, {len(logs)} pairs of runs"
        if low <= 1 <= high:
            text = f"The cost of recording is not measurable: {times} ({pairs})."
        else:
            text = f"{times[0].upper()}{times[1:]} ({pairs})"
            text += ": times of the host are longer here than in a normal run." if low > 1 else "."
    except UnusableError:  # one pair
        text = f"{times[0].upper()}{times[1:]}, in one pair of runs: how much of that is noise is unknown."
    return RecordingCost(ratio=ratio, interval=interval, recorded_s=recorded, plain_s=plain, timed=timed, sentence=text)
