"""The wait for the bandwidth that a driver takes while it clears memory."""

from __future__ import annotations

from aisp_mcp.judge.verifier.handoff_gpu import MOST_S, Bandwidth

FILL_S, SHARED = 1e-4, 1.14


class Device:
    """A clock that fills advance. cleared_at: until then, they take longer."""

    def __init__(self) -> None:
        self.now, self.cleared_at = 0.0, 0.0

    def fill_s(self) -> float:
        seconds = FILL_S * (SHARED if self.now < self.cleared_at else 1.0)
        self.now += seconds
        return seconds


def waiting(clears_s: float) -> float:
    """Seconds that a wait takes beside a driver that clears memory for so long."""
    device = Device()
    bandwidth = Bandwidth(device.fill_s, lambda: device.now)
    begin, device.cleared_at = device.now, device.now + clears_s
    bandwidth.await_all()
    return device.now - begin


def test_nothing_is_waited_for_on_an_idle_device() -> None:
    assert waiting(0.0) < 10 * FILL_S


def test_the_wait_ends_when_memory_is_cleared() -> None:
    assert 0.04 <= waiting(0.04) < 0.04 + 10 * FILL_S


def test_a_device_that_stays_slow_is_not_waited_for() -> None:
    assert waiting(10.0) < MOST_S + 2 * FILL_S


def test_a_device_that_is_slow_at_first_is_waited_for_as_well() -> None:
    device = Device()
    device.cleared_at = 0.05
    assert Bandwidth(device.fill_s, lambda: device.now).best_s == FILL_S
