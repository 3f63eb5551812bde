"""The official conformance suite of the protocol, in both eras, against our own server.

Once with the suite's fixtures on our dispatch, error, job and task layers: every scenario must pass. Once with the
shipped catalogue: every scenario that any server can be put to must pass.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conformance_support import HERE, SUITE, needs_node, run_suite, serving

pytestmark = [pytest.mark.conformance, needs_node(SUITE), pytest.mark.timeout(600)]

ERAS = ["2025-11-25", "2026-07-28"]
# The suite itself says of this one that it needs a rewrite, and skips its only check.
SKIPPED_BY_THE_SUITE = {"tasks-status-notifications"}
TASKS = [
    f"tasks-{name}"
    for name in (
        *("lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input"),
        *("request-headers", "dispatch-and-envelope", "required-task-error", "mrtr-composition"),
    )
]
ANY_SERVER = {
    "2025-11-25": [
        *("server-initialize", "ping", "completion-complete", "tools-list", "resources-list", "prompts-list"),
        *("server-sse-multiple-streams", "server-session-lifecycle", "dns-rebinding-protection"),
    ],
    "2026-07-28": [
        *("server-stateless", "completion-complete", "tools-list", "resources-list", "prompts-list", "caching"),
        *("server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection"),
        *("http-header-validation", "input-required-result-missing-input-response"),
        *("input-required-result-unsupported-methods", "input-required-result-ignore-extra-params"),
        "input-required-result-validate-input",
    ],
}
# How the suite words a check it could not make because a diagnostic tool is not there.
NOT_TESTABLE = ": Not testable: server does not list the diagnostic tool"
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}


@pytest.mark.parametrize("era", ERAS)
def test_every_scenario_passes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str) -> None:
    path = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
    settings = {"TOOL_MODULES": "conformance_tools", "TOOLSETS": "conformance_tools", "PARALLEL_JOBS": "64"}
    monkeypatch.setenv("PYTHONPATH", path)
    for name, value in settings.items():
        monkeypatch.setenv(f"AISP_{name}", value)
    with serving("fixtures") as url:
        report = run_suite(url, tmp_path / "out", "--requirements", era)
    assert {name: report.failed(name) for name in report.checks if report.failed(name)} == {}
    assert report.code == 0
    empty = {name for name, checks in report.checks.items() if not any(c["status"] == "SUCCESS" for c in checks)}
    assert empty <= SKIPPED_BY_THE_SUITE | {"server-sse-polling"}  # warnings alone: streams here are not resumable
    assert len(report.checks) >= REQUIRED[era]
    if era == "2026-07-28":
        assert set(TASKS) <= set(report.checks)


@pytest.mark.parametrize("era", ERAS)
def test_the_shipped_catalogue_passes_what_any_server_can(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.delenv("AISP_TOOL_MODULES")
    with serving("catalogue") as url:
        report = run_suite(url, tmp_path / "out", "--requirements", era)
    for scenario in ANY_SERVER[era]:
        assert [failure for failure in report.failed(scenario) if NOT_TESTABLE not in failure] == [], scenario
        assert any(check["status"] == "SUCCESS" for check in report.checks[scenario]), scenario
