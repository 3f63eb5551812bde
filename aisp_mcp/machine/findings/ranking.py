"""Findings about the machine, ranked: those that make results wrong first, then those that make them slow or noisy."""

from __future__ import annotations

from collections.abc import Iterable

from aisp_mcp.machine.findings import gpu, host, software
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system.records.device import Finding

_RANK = {"critical": 0, "warning": 1, "note": 2}


def all_findings(snapshot: Snapshot) -> list[Finding]:
    """Every finding, most severe first; within a severity: GPU, then software, then host."""
    return ranked(
        [*gpu.find(snapshot), *software.find(snapshot), *host.find(snapshot)],
    )


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by severity, stable."""
    return sorted(findings, key=lambda finding: _RANK[finding.severity])
