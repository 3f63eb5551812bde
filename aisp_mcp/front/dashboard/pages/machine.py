"""This machine, its findings, and its probes over time with the best stored value."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.openings import machine as opening
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.topology import of_topology
from aisp_mcp.store.records.ceiling import Ceiling

MAX_CHARTS = 24
PROBES = ("aisp_hw_speed", "aisp_hw_cache", "aisp_hw_disk", "aisp_gpu_bandwidth", "aisp_hw_roofline")


def build(request: PageRequest) -> dict[str, Any]:
    series: dict[tuple[str, str], list[Ceiling]] = {}
    for row in reversed(request.ctx.store.list_measurements("")):
        series.setdefault((row.kind, row.device), []).append(row)
    probes: list[dict[str, Any]] = [
        {"kind": kind, "device": device, "rows": rows, "last": rows[-1], "best": max(rows, key=lambda row: row.value)}
        for (kind, device), rows in sorted(series.items())
    ]
    repeated = [probe for probe in probes if len(probe["rows"]) > 1][:MAX_CHARTS]
    topology, triage = request.tool("aisp_gpu_topology"), request.tool("aisp_triage")
    summary = triage.result or {}
    return {
        "lead": opening.lead(summary["summary"], summary["findings"], len(probes)) if summary else "",
        "limits": opening.drawing(probes, opening.gpu_names(topology.result or {})),
        "triage": triage,
        "topology": topology,
        "links": of_topology(topology.result or {}),
        "probes": probes,
        "charts": [figures.ceilings(probe["rows"]) for probe in repeated],
        "can_start": PROBES,
    }
