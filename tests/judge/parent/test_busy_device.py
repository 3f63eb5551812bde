"""A device that is busy before or after a round, for the program that is measured or for another process."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_model import HOST, Verifier, trial

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.timing.gpu import round as gpu_round
from aisp_mcp.judge.parent.timing.gpu import schedule as gpu_rounds
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.protocol.roles import Role


def test_a_candidate_that_keeps_the_device_busy_while_it_waits_is_not_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams that wait for each other take turns with the verifier, as long as the gate is shut."""
    monkeypatch.setattr(gpu_round, "GATE_IDLE_S", 0.001)
    driver = trial(Verifier(), polls=True)
    gpu_rounds.measure(driver)
    assert driver.result.device.device_only[Role.CANDIDATE] == pytest.approx(HOST, rel=1e-3)
    assert driver.result.device.overcounted == "the device is rarely idle while its calls wait"
    assert not driver.result.device.busy_probes_s


@pytest.mark.parametrize(
    ("probe_s", "added", "late"), [(25e-6, False, False), (3.2e-4, True, False), (2e-3, True, True)]
)
def test_time_after_an_answer_counts_but_a_switch_between_processes_is_no_accusation(
    probe_s: float, added: bool, late: bool
) -> None:
    """Measured on an H100 after programs that wait for their device: 0.2 to 0.32 ms until another process's kernel."""
    driver = trial(verifier := Verifier())
    timing = RoundTiming(1, 0.022, [22_000_000], Account())

    def measure(at_answer: Any) -> RoundTiming:
        at_answer()
        verifier.probe_s = probe_s
        return timing

    measured = GpuStrategy().with_outputs(driver, Role.CANDIDATE, measure)
    assert measured.elapsed_s == pytest.approx(timing.elapsed_s + (probe_s if added else 0.0))
    assert bool(driver.result.device.late_rounds) == late
