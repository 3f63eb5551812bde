"""The opening of the machine's page: each probe's newest value against its data sheet, or the best value seen here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts
from aisp_mcp.server.charts import bars
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.ceiling import Ceiling

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


def drawing(probes: Sequence[Data], names: Mapping[str, str]) -> Drawing | None:
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
