"""Loads of a server: a number of requests at once, a rate of arrivals that does not wait for answers, or a trace's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.errors import UsageError

_SPELLED = re.compile(r"(?P<value>\d+(\.\d+)?)(?P<unit>|/s|%)")
HINT = "8 sends eight requests at once, 2.5/s lets them arrive at random, 70% at that share of the highest rate."
TRACE = "trace"


@dataclass(frozen=True)
class Load:
    """A load. streams: requests at once. rate: arrivals per second, by a Poisson process. share: rate of the highest
    one that the baseline reached under the other loads. recorded: when the requests of a trace arrived. One is set.
    """

    streams: int | None = None
    rate: float | None = None
    share: float | None = None
    recorded: bool = False

    @property
    def label(self) -> str:
        if self.recorded:
            return "recorded arrivals"
        if self.streams is not None:
            return f"concurrency {self.streams}"
        return f"{self.share:.0%} of its rate" if self.rate is None else f"{self.rate:.3g} requests/s"

    def at(self, highest: float) -> Load:
        """The load with a rate, where it was a share of the highest one."""
        return self if self.share is None else Load(rate=self.share * highest)


def parse(texts: Sequence[str]) -> list[Load]:
    """The loads in the order in which they are measured: shares last. Raises UsageError BAD_LOAD."""
    loads = list(dict.fromkeys(_parse(text) for text in texts))
    if all(load.share is not None for load in loads):
        message = "A share needs another load, whose rate it is a share of."
        raise UsageError("BAD_LOAD", message, "Such as --loads 8 --loads 70%.")
    return sorted(loads, key=lambda load: load.share is not None)


def _parse(text: str) -> Load:
    if text.strip() == TRACE:
        return Load(recorded=True)
    match = _SPELLED.fullmatch(text.strip())
    value = float(match["value"]) if match else 0.0
    if match is None or not value or (match["unit"] == "" and value != int(value)) or value > 100_000:
        raise UsageError("BAD_LOAD", f"{text[:80]!r} is not a load.", HINT)
    if match["unit"] == "/s":
        return Load(rate=value)
    return Load(share=value / 100) if match["unit"] == "%" else Load(streams=int(value))


def default(concurrency: int, two_servers: bool, recorded: bool = False) -> list[Load]:
    """One load for one server; for two, also four times as many requests at once, and random arrivals. recorded: those
    of a trace instead.
    """
    closed, arrivals = Load(streams=concurrency), Load(recorded=True) if recorded else Load(share=0.7)
    if two_servers:
        return [closed, Load(streams=4 * concurrency), arrivals]
    return [arrivals] if recorded else [closed]
