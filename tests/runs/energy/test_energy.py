"""Joules per call: idle power subtracted, short windows refused, and nothing where nothing was counted."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from analyze_runs import run_of

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.programs import energy as energy_child
from aisp_mcp.runs.energy import figures
from aisp_mcp.runs.energy.figures import Window
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.gpu.energy import GpuCounter


def test_idle_power_is_subtracted_and_shown() -> None:
    windows = [Window(calls=100, seconds=1.0, energy_j=joules) for joules in (300.0, 320.0, 310.0)]
    reading = figures.reading("x", "ch01:a", "gpu", windows, idle_w=100.0, work=(4.2e9, 2.1e6))
    assert reading.per_call_j.model_dump() == pytest.approx({"value": 2.1, "low": 2.0, "high": 2.2})
    assert reading.gross_per_call_j == pytest.approx(3.1)
    assert (reading.idle_w, reading.power_w, reading.calls) == (100, pytest.approx(310), 300)
    assert (reading.flops_per_j, reading.bytes_per_j) == (pytest.approx(2e9), pytest.approx(1e6))


def test_windows_below_half_a_second_give_no_figure() -> None:
    short = Window(calls=10, seconds=0.49, energy_j=100.0)
    with pytest.raises(ValueError, match=r"0\.5 s"):
        figures.reading("x", "ch01:a", "gpu", [short], 50.0)
    reading = figures.reading("x", "ch01:a", "gpu", [short, Window(calls=10, seconds=0.5, energy_j=50.0)], 0.0)
    assert reading.calls == 10


def test_a_program_below_idle_has_no_efficiency() -> None:
    reading = figures.reading("x", "ch01:a", "gpu", [Window(calls=1, seconds=1.0, energy_j=90.0)], 100.0, (1.0, 1.0))
    assert (reading.flops_per_j, reading.bytes_per_j) == (None, None)


def test_whole_runs_have_power_and_no_energy_per_call() -> None:
    counted = run_of(run_id="r_2", gpus=[{"uuid": "GPU-1", "energy_j": 1600.0}])
    blind = run_of(run_id="r_3", gpus=[{"uuid": "GPU-1", "energy_j": None}])
    [row] = figures.of_runs([counted, blind, run_of()])
    assert (row.run, row.energy_j, row.mean_w) == ("r_2", 1600.0, 200.0)


def test_a_window_counts_every_call_and_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(energy_child.time, "perf_counter", lambda: clock.now)

    def run(a: int) -> None:
        clock.now += 0.01

    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
    counter = SimpleNamespace(joules=lambda: 250.0 * clock.now)
    rows = energy_child._window(torch, run, [{"a": 1}, {"a": 2}], 5, counter)  # type: ignore[arg-type]
    assert rows["calls"] == 150
    assert rows["seconds"] == pytest.approx(1.5)
    assert rows["energy_j"] == pytest.approx(375)


class FakeNvml:
    """A counter of 120 W, by the clock of the test."""

    class NVMLError(Exception):
        """As the library's own."""

    def __init__(self, clock: SimpleNamespace, counts: bool = True) -> None:
        self.clock, self.counts, self.asked = clock, counts, ""

    def nvmlInit(self) -> None:
        """Nothing to start."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        self.asked = uuid
        return 7

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        assert handle == 7
        if not self.counts:
            raise self.NVMLError("not supported")
        return int(120_000 * self.clock.now)


def counter(monkeypatch: pytest.MonkeyPatch, counts: bool = True) -> tuple[GpuCounter, FakeNvml]:
    clock = SimpleNamespace(now=0.0)
    fake = FakeNvml(clock, counts)
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(nvml, "_READY", threading.Event())
    monkeypatch.setattr(energy_child.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(energy_child.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    return GpuCounter("GPU-1234"), fake


def test_idle_power_is_that_of_the_named_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    result, fake = counter(monkeypatch)
    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
    assert fake.asked == "GPU-1234"
    assert energy_child._idle_w(torch, result) == pytest.approx(120)


def test_a_gpu_without_a_counter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable) as caught:
        counter(monkeypatch, counts=False)
    assert caught.value.code == "NO_ENERGY_COUNTER"
