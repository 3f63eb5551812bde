"""One job: what it runs, its progress, the end of its output, and its answer.

A gate's answer begins with the outcome of the change, and each benchmark's ratio of base to head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aisp_mcp.front.dashboard import plans
from aisp_mcp.front.dashboard.request import PageRequest, ToolAnswer
from aisp_mcp.front.dashboard.words import count, listed, ordered, summed, title_of
from aisp_mcp.front.rest.lists import PROFILING
from aisp_mcp.server.charts import answers, ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.registry import get, names
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.job import Job

TAIL = 8000
Result = dict[str, Any] | None


def build(request: PageRequest) -> dict[str, Any]:
    """?id=. Raises NotFound UNKNOWN_JOB."""
    job = request.ctx.jobs.get(request.word("id"), request.ctx.sees)
    envelope = job.envelope or {}
    result: Result = envelope.get("result") if isinstance(envelope.get("result"), dict) else None
    subject = job.subject
    return {
        "title": f"{title_of(job.tool)}{f' of {subject}' if subject else ''}",
        "lead": _lead(job, result, envelope.get("error")),
        "job": job,
        "log": request.ctx.jobs.log_tail(job.id, TAIL),
        "answer": ToolAnswer(job.tool, result, envelope.get("error")) if envelope else None,
        "drawings": _drawings(job, result),
        "gate": result if is_gate(result) else None,
        "run_id": (result or {}).get("run_id"),
        "profile": job.tool in PROFILING and result is not None,
    }


def _lead(job: Job, result: Result, error: dict[str, Any] | None) -> str:
    """The outcome of an ended job, or the progress of a running one."""
    took = numbers.seconds(job.ended_at - job.started_at) if job.started_at and job.ended_at else ""
    state = f"{job.state.value.capitalize()}{f' after {took}' if took else ''}"
    if error:
        return f"{state}: {error.get('message')}"
    if result is None:
        ahead = f", {job.position} ahead" if job.position else ""
        return f"{state}{ahead}{f': {job.progress.message}' if job.progress and job.progress.message else ''}."
    return _outcome(job, result) or f"{state}."


def _outcome(job: Job, result: dict[str, Any]) -> str:
    """The answer in a sentence, if there is one."""
    if is_gate(result):
        return gate_lead(result)
    verdicts = [str(row.get("verdict")) for row in result.get("rulings") or [] if isinstance(row, dict)]
    if len(verdicts) == 1:
        sentence = str(result["rulings"][0].get("sentence"))
        return f"{sentence[:1].upper()}{sentence[1:]}."
    if verdicts:
        return f"{summed(ordered({name: verdicts.count(name) for name in verdicts})).capitalize()}."
    summary = result.get("summary")
    sentences = [result.get("sentence"), summary if isinstance(summary, str) else None, plans.lead(job.tool, result)]
    return next((text for text in sentences if text), "")


def _drawings(job: Job, result: Result) -> list[Drawing]:
    if result is None:
        return []
    if is_gate(result):
        return [drawing] if (drawing := gate_drawing(result)) else []
    chart = get(job.tool).chart if job.tool in names() else None
    if chart is None or chart == "job":  # job: of a tool that shows another job's answer
        return plans.drawings(result)
    return answers.draw(chart, result)


Data = Mapping[str, Any]
SHORT, MOST = 10, 60
# The style of a verdict for each outcome; others are grey.
STYLES = {"improved": "faster", "unchanged": "same", "regressed": "slower", "wrong": "incorrect", "failed": "invalid"}


def is_gate(result: Data | None) -> bool:
    """True for the answer of a gate between two commits."""
    return isinstance(result, Mapping) and {"base", "head", "rows", "passed"} <= set(result)


def gate_commits(result: Data) -> tuple[str, str]:
    """Base and head, short."""
    return str(result["base"])[:SHORT], str(result["head"])[:SHORT] if " " not in result["head"] else result["head"]


def gate_lead(result: Data) -> str:
    """Passed or not, and the number of benchmarks by outcome."""
    base, head = gate_commits(result)
    outcomes = Counter(str(row["outcome"]).replace("_", " ") for row in result["rows"])
    text = listed(f"{number} {name}" for name, number in outcomes.items())
    state = "passes" if result["passed"] else "does not pass"
    head = f"The {head}" if " " in head else head
    return f"{head} against {base} {state}: of {count(len(result['rows']), 'benchmark')}, {text}."


def gate_drawing(result: Data) -> Drawing | None:
    """Ratios with intervals; right of 1× the head is faster."""
    rows = [
        RatioRow(
            row["target"],
            STYLES.get(row["outcome"], "inconclusive"),
            row.get("ratio"),
            row.get("low"),
            row.get("high"),
            row.get("noise_floor"),
        )
        for row in result["rows"][:MOST]
        if row.get("ratio")
    ]
    return ratios.draw(rows, "Time of base over time of head") if rows else None
