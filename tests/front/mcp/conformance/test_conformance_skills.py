"""The Skills extension of the shipped server before the official conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance_support import SUITE, needs_node, run_suite, serving

pytestmark = [pytest.mark.conformance, needs_node(SUITE), pytest.mark.timeout(600)]

SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str) -> None:
    monkeypatch.delenv("AISP_TOOL_MODULES")
    with serving("catalogue") as url:
        report = run_suite(url, tmp_path / "out", "--scenario", scenario, "--force")
    checks = [check for rows in report.checks.values() for check in rows]
    assert len(checks) > 4
    bad = [(check["id"], check.get("errorMessage")) for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert bad == []
