"""Timing on a GPU of programs that return one buffer again, in a model of three processes."""

from __future__ import annotations

import pytest
from gpu_model import CALL, STORED, Verifier, trial

from aisp_mcp.judge.parent.timing.gpu import schedule
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.estimate import IsolatedCallEvidence, with_usable_seconds


def test_a_copy_that_is_spared_gains_nothing() -> None:
    """Copies of one buffer are subtracted, but an isolated call, which has none, bounds the gain."""
    driver = trial(Verifier(shared=True), spares=True)
    schedule.measure(driver)
    device = with_usable_seconds(driver.result.device)
    assert device.device_only[Role.CANDIDATE] == pytest.approx(CALL - STORED, rel=1e-3)
    evidence = IsolatedCallEvidence(device.device_only, device.isolated, 0.0, 0.0)
    assert evidence.lower_bound()[Role.CANDIDATE] == pytest.approx(CALL, rel=1e-3)
