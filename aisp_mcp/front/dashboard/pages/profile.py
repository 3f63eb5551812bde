"""One stored profile: where the time went, kernels, findings, roofline and memory."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.figures import MEMORY
from aisp_mcp.front.dashboard.pages.profiles import StoredProfile, stored, subject
from aisp_mcp.front.dashboard.request import Answer, PageRequest
from aisp_mcp.server.charts import answers as charts
from aisp_mcp.server.charts import plane
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.plane import Path, Scale, Spot
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.job import JobState

SECTIONS = ("overview", "steps", "gaps")
MAX_OTHERS = 50
WITH_STACKS = ("aisp_profile_torch", "aisp_profile_nsys")


def build(request: PageRequest) -> dict[str, Any]:
    """?id= of the job, ?section= of a timeline. Raises NotFound UNKNOWN_JOB, NO_PROFILE."""
    profile = stored(request.ctx, request.word("id"))
    section = request.word("section", "overview")
    section = section if section in SECTIONS else "overview"
    answers, drawings = _answers(request, profile, section)
    return {
        "profile": profile,
        "name": subject(profile.job),
        "section": section,
        "sections": SECTIONS if _is_trace(profile) else (),
        "answers": [_shown(answer) for answer in answers if answer.error is None],
        "failures": [answer for answer in answers if answer.error is not None],
        "drawings": drawings,
        "flame": profile.job.tool in WITH_STACKS,
        "timeline": _is_trace(profile),
        "perfetto": _is_trace(profile) and profile.job.tool == "aisp_profile_torch",
        "others": _others(request, profile) if profile.job.tool in WITH_STACKS else [],
    }


def _others(request: PageRequest, profile: StoredProfile) -> list[tuple[str, str]]:
    """(job id, label) of other profiles by this tool, newest first, to compare flame graphs with."""
    rows, _ = request.ctx.store.list_jobs(JobState.SUCCEEDED, profile.job.tool, MAX_OTHERS, None, request.ctx.sees)
    return [(job.id, f"{subject(job)}, {numbers.moment(job.created_at)}") for job in rows if job.id != profile.job.id]


def _shown(answer: Answer) -> Answer:
    """Leave out facts about the file, which the page's head shows; unwrap a single rank; write the window as text."""
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


def _is_trace(profile: StoredProfile) -> bool:
    return profile.job.tool in WITH_STACKS and not profile.path.name.endswith(".speedscope.json")


def _answers(request: PageRequest, profile: StoredProfile, section: str) -> tuple[list[Answer], list[Drawing]]:
    path = str(profile.path)
    if profile.job.tool == "aisp_profile_ncu":
        roof = request.tool("aisp_profile_roofline", profile=path)
        summary = request.tool("aisp_ncu_summary", report=path)
        return [summary, roof], charts.draw("kernels", roof.result or {})
    if profile.job.tool == "aisp_profile_memory":
        return [Answer(profile.job.tool, profile.result)], _memory(profile.result)
    if not _is_trace(profile):
        return [Answer(profile.job.tool, profile.result)], []
    if profile.job.tool == "aisp_profile_nsys":
        summary = request.tool("aisp_nsys_summary", report=path, section=section)
        drawings = charts.draw("timeline", summary.result or {})
    else:
        summary = request.tool("aisp_profile_hta", traces=[path])
        drawings = charts.draw("ranks", summary.result or {})
    kernels = request.tool("aisp_profile_kernels", profile=path)
    operators = Answer(profile.job.tool, {key: value for key, value in profile.result.items() if key == "operators"})
    has_operators = bool(operators.result and operators.result.get("operators"))
    answers = [operators, summary, kernels] if has_operators else [summary, kernels]
    return answers, drawings


def _memory(result: dict[str, Any]) -> list[Drawing]:
    """Allocated bytes over time, per device."""
    drawings = []
    for device in result.get("memory", []):
        points = [(float(at) * 1e-6, float(size)) for at, size in device.get("timeline", []) if size is not None]
        if len(points) > 1:
            peak = max(points, key=lambda point: point[1])
            axes = Scale("time, s", lambda value: f"{value:.3g}"), Scale("allocated", MEMORY.say)
            title = f"Memory of device {device.get('device')}"
            drawings.append(plane.draw(title, axes, [Spot(*peak, "c1", "peak")], [Path("roof c2", points)]))
    return drawings
