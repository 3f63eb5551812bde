"""One stored profile: where the time went, kernels, named problems, roofline, memory."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.asked import Answer, Asked
from aisp_mcp.front.dashboard.figures import MEMORY
from aisp_mcp.front.dashboard.pages.profiles import Stored, stored, subject
from aisp_mcp.server.charts import answers, plane
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.plane import Path, Scale, Spot
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.job import JobState

SECTIONS = ("overview", "steps", "gaps")
MOST_OTHERS = 50
WITH_STACKS = ("aisp_profile_torch", "aisp_profile_nsys")


def build(asked: Asked) -> dict[str, Any]:
    """?id= of the job, ?section= of a timeline. Raises NotFound UNKNOWN_JOB, NO_PROFILE."""
    found = stored(asked.ctx, asked.word("id"))
    section = asked.word("section", "overview")
    section = section if section in SECTIONS else "overview"
    told, drawings = _told(asked, found, section)
    return {
        "found": found,
        "name": subject(found.job),
        "section": section,
        "sections": SECTIONS if _is_trace(found) else (),
        "told": [_plain(answer) for answer in told if answer.error is None],
        "refused": [answer for answer in told if answer.error is not None],
        "drawings": drawings,
        "flame": found.job.tool in WITH_STACKS,
        "timeline": _is_trace(found),
        "perfetto": _is_trace(found) and found.job.tool == "aisp_profile_torch",
        "others": _others(asked, found) if found.job.tool in WITH_STACKS else [],
    }


def _others(asked: Asked, found: Stored) -> list[tuple[str, str]]:
    """(job id, words) of other profiles of this tool, newest first: what a flame graph can be compared with."""
    rows, _ = asked.ctx.store.list_jobs(JobState.SUCCEEDED, found.job.tool, MOST_OTHERS, None, asked.ctx.sees)
    return [(one.id, f"{subject(one)}, {numbers.moment(one.created_at)}") for one in rows if one.id != found.job.id]


def _plain(answer: Answer) -> Answer:
    """Without the file's particulars, which stand above; a window as words; the only rank of a trace as the answer."""
    result = answer.result or {}
    ranks = result.get("ranks") or []
    result = ranks[0] if len(ranks) == 1 else result
    result = {name: value for name, value in result.items() if name not in ("source", "snapshot")}
    window = result.get("window")
    if isinstance(window, dict):
        length = numbers.seconds((window["end_ns"] - window["start_ns"]) * 1e-9)
        result["window"] = f"{length}: {window['definition']}"
        result["steps"] = [{**row, "start_ns": row["start_ns"] - window["start_ns"]} for row in result.get("steps", [])]
    return Answer(answer.tool, result)


def _is_trace(found: Stored) -> bool:
    return found.job.tool in WITH_STACKS and not found.path.name.endswith(".speedscope.json")


def _told(asked: Asked, found: Stored, section: str) -> tuple[list[Answer], list[Drawing]]:
    path = str(found.path)
    if found.job.tool == "aisp_profile_ncu":
        roof = asked.tool("aisp_profile_roofline", profile=path)
        summary = asked.tool("aisp_ncu_summary", report=path)
        return [summary, roof], answers.draw("kernels", roof.result or {})
    if found.job.tool == "aisp_profile_memory":
        return [Answer(found.job.tool, found.result)], _memory(found.result)
    if not _is_trace(found):
        return [Answer(found.job.tool, found.result)], []
    if found.job.tool == "aisp_profile_nsys":
        summary = asked.tool("aisp_nsys_summary", report=path, section=section)
    else:
        summary = asked.tool("aisp_profile_hta", traces=[path])
    kernels = asked.tool("aisp_profile_kernels", profile=path)
    chart = "timeline" if found.job.tool == "aisp_profile_nsys" else "ranks"
    own = Answer(found.job.tool, {key: value for key, value in found.result.items() if key == "operators"})
    told = [own, summary, kernels] if own.result and own.result.get("operators") else [summary, kernels]
    return told, answers.draw("timeline" if chart == "timeline" else "ranks", summary.result or {})


def _memory(result: dict[str, Any]) -> list[Drawing]:
    """Allocated bytes over time, per device."""
    drawn = []
    for one in result.get("memory", []):
        points = [(float(at) * 1e-6, float(size)) for at, size in one.get("timeline", []) if size is not None]
        if len(points) > 1:
            peak = max(points, key=lambda point: point[1])
            axes = Scale("time, s", lambda value: f"{value:.3g}"), Scale("allocated", MEMORY.say)
            title = f"Memory of device {one.get('device')}"
            drawn.append(plane.draw(title, axes, [Spot(*peak, "c1", "peak")], [Path("roof c2", points)]))
    return drawn
