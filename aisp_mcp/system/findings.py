"""Findings about the machine, ranked: what makes results wrong first, then what makes them slow or noisy."""

from __future__ import annotations

from collections.abc import Iterable

from aisp_mcp.model.device import Finding
from aisp_mcp.system import findings_gpu, findings_host, findings_software
from aisp_mcp.system.snapshot import Snapshot

_RANK = {"critical": 0, "warning": 1, "note": 2}


def all_findings(snapshot: Snapshot) -> list[Finding]:
    """Every finding, most severe first; within a severity GPU before software before host."""
    return ranked(
        [*findings_gpu.find(snapshot), *findings_software.find(snapshot), *findings_host.find(snapshot)],
    )


def ranked(found: Iterable[Finding]) -> list[Finding]:
    """Sorted by severity, stable."""
    return sorted(found, key=lambda finding: _RANK[finding.severity])
