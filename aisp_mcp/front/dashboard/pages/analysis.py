"""Analyses of stored runs, one section at a time; most sections show the answer of a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.front.dashboard import figures, plans
from aisp_mcp.front.dashboard.request import PageRequest, ToolAnswer
from aisp_mcp.front.dashboard.words import SECTIONS as SECTION_TITLES
from aisp_mcp.front.dashboard.words import count
from aisp_mcp.front.rest.filters import parse
from aisp_mcp.front.rest.tools import ANALYSES
from aisp_mcp.runs import leaderboards
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.store.records.verdict_row import VerdictFilter

# Section to the tool that answers it; the first two are computed from verdicts.
SECTIONS = {"leaderboards": "", "tradeoffs": "", **ANALYSES}
GOALS = ("speed", "latency", "throughput", "memory")
MAX_ROWS, CHARTED = 100, 40
LIMITS = {
    "latency_ms": (0.001, 1000.0, "time per call, ms, at most"),
    "vram_gb": (0.001, 192.0, "memory, GB, at most"),
    "calls_per_s": (0.1, 1e6, "calls per second, at least"),
}


def build(request: PageRequest) -> dict[str, Any]:
    """?section= with the section's arguments."""
    section = request.word("section", "leaderboards")
    section = section if section in SECTIONS else "leaderboards"
    shared: dict[str, Any] = {
        "section": section,
        "sections": list(SECTIONS),
        "limits": LIMITS,
        "answer": None,
        "drawings": [],
    }
    shared |= {"boards": {}, "trades": [], "lead": "", "techniques": [], "titles": SECTION_TITLES, "goals": GOALS}
    if not SECTIONS[section]:
        rows = request.ctx.store.latest_verdicts(parse(request.word("q")), request.ctx.sees)
        if section == "leaderboards":
            boards = leaderboards.leaderboards(rows)
            return {**shared, "boards": boards, "lead": _proven(boards)}
        trades = sorted(leaderboards.tradeoffs(rows), key=lambda row: row["low"] or 0.0, reverse=True)[:MAX_ROWS]
        lead = f"{count(len(trades), 'verified candidate')} with time and memory." if trades else ""
        return {**shared, "trades": trades, "drawings": _present(figures.tradeoffs(trades[:CHARTED])), "lead": lead}
    answer = _answer(request, section)
    latest = request.ctx.store.latest_verdicts(VerdictFilter(confirmed=True), request.ctx.sees)
    alone = {row.target: row for row in reversed(latest)}
    shared |= {"lead": _lead(section, answer), "techniques": _techniques(answer)}
    return {**shared, "answer": answer, "drawings": _drawings(section, answer), "alone": alone}


def _proven(boards: dict[str, list[dict[str, Any]]]) -> str:
    """The number of targets with a faster candidate: ratios of different targets say nothing about each other."""
    rows = [row for board in boards.values() for row in board]
    faster = sum(row["verdict"] == "faster" for row in rows)
    return f"A candidate is proven faster for {faster} of {count(len(rows), 'target')}." if rows else ""


def _lead(section: str, answer: ToolAnswer | None) -> str:
    """The answer's summary sentence, or the number of its rows."""
    result = (answer.result if answer else None) or {}
    if section == "recommendations":
        return plans.lead("aisp_recommend", result)
    if section == "whatif" and answer is None:
        return "Set at least one limit."
    if section == "pareto" and result.get("fronts"):
        points = [point for front in result["fronts"] for point in front["points"]]
        front = sum(point["frontier"] for point in points)
        return f"{front} of {count(len(points), 'program')} {'is' if front == 1 else 'are'} dominated by no other."
    rows = next((value for value in result.values() if isinstance(value, list) and value), [])
    texts = [result.get(name) for name in ("headline", "summary", "sentence")]
    texts += [row.get("sentence") for row in rows[:1] if isinstance(row, dict)]
    return next((text for text in texts if isinstance(text, str)), "")


def _techniques(answer: ToolAnswer | None) -> list[dict[str, Any]]:
    planned = ((answer.result if answer else None) or {}).get("answer")
    return list(planned.get("techniques") or []) if isinstance(planned, dict) else []


def _answer(request: PageRequest, section: str) -> ToolAnswer | None:
    arguments: dict[str, Any] = {}
    if section == "whatif":
        arguments = {name: value for name in LIMITS if (value := _number(request.word(name)))}
        if not arguments:
            return None
    if section == "cost" and (price := _number(request.word("usd_per_hour"))):
        arguments = {"usd_per_hour": price}
    if section == "recommendations":
        arguments = {"goal": request.word("goal", GOALS[0])}
    return request.tool(SECTIONS[section], **arguments)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None


def _drawings(section: str, answer: ToolAnswer | None) -> list[Drawing]:
    if section == "recommendations":
        return plans.techniques(_techniques(answer))
    field, draw = _CHARTS.get(section, ("", None))
    if draw is None or answer is None or answer.result is None:
        return []
    return [drawing for record in answer.result.get(field, []) for drawing in _present(draw(record))]


def _present(drawing: Drawing | None) -> list[Drawing]:
    return [] if drawing is None else [drawing]


_CHARTS: dict[str, tuple[str, Callable[[Any], Drawing | None]]] = {
    "pareto": ("fronts", figures.pareto),
    "scaling": ("scalings", figures.scaling),
}
