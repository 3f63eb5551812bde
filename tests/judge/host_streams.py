"""Stand-ins for a device's gate and events, on a host whose streams do at once what is laid into them."""

from __future__ import annotations

from typing import Any

from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.shared_memory import ANSWERED, ENQUEUED, NO_LIMIT, ControlBlock


class HostGate:
    """Waits and says as a device would. early: numbers that it says before their time."""

    def __init__(self, control: ControlBlock, early: int = 0) -> None:
        self.stats, self.early, self.until = control.stats, early, clock() + 30

    def wait(self, _: Any, which: int, number: int) -> None:
        while which != ENQUEUED and self.stats[which] < number:  # it is laid and done at once
            assert clock() < self.until

    def say(self, _: Any, which: int, number: int) -> None:
        self.stats[which] = number + self.early

    def shut(self, _: Any) -> None:
        pass

    end = shut


class HostEvent:
    """Reads the clock when it is recorded."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, _: Any) -> None:
        self.at = clock()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: HostEvent) -> float:
        return 1e3 * (other.at - self.at)


class Never(HostEvent):
    """Of a device that has not come to it."""

    def query(self) -> bool:
        return False


class Late(HostEvent):
    """Of a device that comes to it when nobody waits any longer."""

    control: ControlBlock

    def query(self) -> bool:
        return self.control.stats[ANSWERED] == NO_LIMIT
