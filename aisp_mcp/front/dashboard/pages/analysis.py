"""Stored runs from several sides: one section at a time, each the answer of a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.asked import Answer, Asked
from aisp_mcp.front.rest.analysis import TOOLS
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.runs import leaderboards
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.store.records.verdict_row import VerdictFilter

# Section → the tool that answers it; the first two are made from verdicts alone.
SECTIONS = {"leaderboards": "", "tradeoffs": "", **TOOLS}
MOST = 100  # rows of a table
LIMITS = {
    "latency_ms": (0.001, 1000.0, "time per call, ms, at most"),
    "vram_gb": (0.001, 192.0, "memory, GB, at most"),
    "calls_per_s": (0.1, 1e6, "calls per second, at least"),
}


def build(asked: Asked) -> dict[str, Any]:
    """?section= with its own words."""
    section = asked.word("section", "leaderboards")
    section = section if section in SECTIONS else "leaderboards"
    shared = {"section": section, "sections": list(SECTIONS), "limits": LIMITS, "answer": None, "drawings": []}
    shared |= {"boards": {}, "trades": []}
    if not SECTIONS[section]:
        rows = asked.ctx.store.latest_verdicts(parse(asked.word("q")), asked.ctx.sees)
        if section == "leaderboards":
            return {**shared, "boards": leaderboards.leaderboards(rows)}
        trades = sorted(leaderboards.tradeoffs(rows), key=lambda row: row["low"] or 0.0, reverse=True)[:MOST]
        return {**shared, "trades": trades, "drawings": _some(figures.tradeoffs(trades))}
    answer = _answer(asked, section)
    alone = {row.target: row for row in asked.ctx.store.latest_verdicts(VerdictFilter(), asked.ctx.sees)}
    return {**shared, "answer": answer, "drawings": _drawings(section, answer), "alone": alone}


def _answer(asked: Asked, section: str) -> Answer | None:
    words: dict[str, Any] = {}
    if section == "whatif":
        words = {name: value for name in LIMITS if (value := _number(asked.word(name)))}
        if not words:
            return None
    if section == "cost" and (price := _number(asked.word("usd_per_hour"))):
        words = {"usd_per_hour": price}
    if section == "recommendations":
        words = {"goal": asked.word("goal", "latency")}
    return asked.tool(SECTIONS[section], **words)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None


def _drawings(section: str, answer: Answer | None) -> list[Drawing]:
    found, draw = _DRAWN.get(section, ("", None))
    if draw is None or answer is None or answer.result is None:
        return []
    return [one for item in answer.result.get(found, []) for one in _some(draw(item))]


def _some(drawing: Drawing | None) -> list[Drawing]:
    return [] if drawing is None else [drawing]


_DRAWN: dict[str, tuple[str, Callable[[Any], Drawing | None]]] = {
    "pareto": ("fronts", figures.pareto),
    "scaling": ("scalings", figures.scaling),
}
