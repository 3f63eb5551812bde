"""The machine: each probe's newest value against its data sheet or the best value seen here, findings, topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.server.charts import bars
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing, Shape, box, line, words
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import short
from aisp_mcp.store.measurements import Ceiling

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
        "lead": lead(summary["summary"], summary["findings"], len(probes)) if summary else "",
        "limits": probe_drawing(probes, gpu_names(topology.result or {})),
        "triage": triage,
        "topology": topology,
        "links": of_topology(topology.result or {}),
        "probes": probes,
        "charts": [figures.ceilings(probe["rows"]) for probe in repeated],
        "can_start": PROBES,
    }


MOST, TERA = 24, 1e12
Data = Mapping[str, Any]


def gpu_names(topology: Data) -> dict[str, str]:
    """GPU's identifier to its name."""
    return {str(gpu["uuid"]): str(gpu.get("name")) for gpu in topology.get("gpus") or [] if gpu.get("uuid")}


def limit_of(row: Ceiling, names: Mapping[str, str]) -> float | None:
    """The data sheet's value of a probe on a known GPU; None for all others."""
    facts = load.gpu(names.get(row.device))
    if facts is None:
        return None
    return facts.memory.bandwidth_bytes_s if row.unit == "B/s" and "bandwidth" in row.kind else _peak(row, facts)


def _peak(row: Ceiling, facts: GpuFacts) -> float | None:
    kind = row.kind.rpartition("_")[2]
    if row.unit not in ("FLOP/s", "OP/s") or "gemm" not in row.kind or kind not in facts.peak:
        return None
    return facts.peak[kind].dense * TERA


def probe_drawing(probes: Sequence[Data], names: Mapping[str, str]) -> Drawing | None:
    """One bar for each probe. probes: with rows, last and best."""
    items = [_bar(probe["last"], probe["best"], limit_of(probe["last"], names), names) for probe in probes[:MOST]]
    return bars.draw("Newest measurement against its limit", items, ("probe", "measured")) if items else None


def _bar(last: Ceiling, best: Ceiling, limit: float | None, names: Mapping[str, str]) -> Bar:
    whole, source = (limit, "data sheet") if limit else (best.value, "best seen here")
    share = last.value / whole if whole else 0.0
    style = "c0" if share >= 0.9 else "c2" if share >= 0.6 else "c1"
    value = f"{_amount(last.value, last.unit)} · {numbers.percent(share)} of the {source}"
    name = f"{last.kind.replace('_', ' ')}, {names.get(last.device, last.device)}"
    return Bar(name, share, value, style, limit=f"{_amount(whole, last.unit)}, {source}")


def _amount(value: float, unit: str) -> str:
    return numbers.size(round(value)) if unit == "bytes" else numbers.quantity(value, unit)


def lead(summary: str, findings: Iterable[Data], drawn: int) -> str:
    """The triage's summary, and its most severe finding."""
    ranked = sorted(findings, key=lambda finding: ("critical", "warning", "note").index(finding["severity"]))
    text = summary.rstrip(".")
    if ranked and ranked[0]["severity"] != "note":
        return f"{text}. {ranked[0]['message']}"
    return f"{text}." if drawn else f"{text}. Nothing was probed yet."


ROW, HEAD, GAP = 30.0, 26.0, 8.0


def of_topology(result: Mapping[str, Any]) -> Drawing | None:
    """Draw the topology; None if the machine reports no NUMA nodes."""
    nodes = {node["node"]: node for node in result.get("numa", [])}
    parts = [*_gpus(result.get("gpus", [])), *_adapters(result.get("nics", []))]
    parts = [(node if node in nodes else min(nodes, default=0), name, index) for node, name, index in parts]
    if not nodes:
        return None
    width, positions, shapes, rows = 100 / len(nodes), dict[int, tuple[float, float]](), list[Shape](), []
    tallest = max(sum(part[0] == node for part in parts) for node in nodes)
    height = HEAD + ROW * tallest + GAP
    for column, (node, facts) in enumerate(sorted(nodes.items())):
        left = column * width
        shapes.append(box("floor", left, 0, left + width - 1, height, f"NUMA node {node}, CPUs {facts.get('cpus')}"))
        shapes.append(words("soft", left + 1, 17, f"NUMA {node} · CPUs {short(str(facts.get('cpus')), 20)}"))
        for row, (_, name, index) in enumerate(part for part in parts if part[0] == node):
            top = HEAD + ROW * row
            shapes.append(box("grid node", left + 1, top, left + width * 0.7, top + ROW - 6, name))
            shapes.append(words("", left + 2, top + 17, short(name, 30)))
            rows.append((f"NUMA {node}", name))
            if index is not None:
                positions[index] = (left + width * 0.7, top + ROW / 2 - 3)
    linked = [(pair["a"], pair["b"]) for pair in result.get("pairs", []) if pair.get("nvlink")]
    for a, b in linked:
        if a in positions and b in positions:
            shapes.append(line("roof c0", *positions[a], *positions[b], f"NVLink: GPU {a} and GPU {b}"))
    about = f"{len(nodes)} NUMA nodes, {len(positions)} GPUs, {len(linked)} pairs with NVLink."
    return Drawing("Topology", about, height + 4, shapes, ("node", "part"), rows)


def _gpus(gpus: list[dict[str, Any]]) -> list[tuple[int | None, str, int | None]]:
    """(NUMA node, name, index) of GPUs."""
    return [(gpu.get("numa_node"), f"GPU {gpu['index']} {gpu.get('name') or ''}", gpu["index"]) for gpu in gpus]


def _adapters(nics: list[dict[str, Any]]) -> list[tuple[int | None, str, int | None]]:
    """(NUMA node, name, no index) of physical network adapters."""
    physical = [nic for nic in nics if nic.get("kind") not in ("virtual", "loopback")]
    return [(nic.get("numa_node"), f"{nic['name']} ({nic.get('kind')})", None) for nic in physical]
