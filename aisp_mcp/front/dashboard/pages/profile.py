"""One stored profile: where the time went, what to try, its timeline, flame graph and kernels on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard import traces
from aisp_mcp.front.dashboard.figures import MEMORY
from aisp_mcp.front.dashboard.pages.profiles import StoredProfile, stored, subject
from aisp_mcp.front.dashboard.request import PageRequest, ToolAnswer
from aisp_mcp.profile.pictures import flame, kinds
from aisp_mcp.profile.readers.text import shorten
from aisp_mcp.server.charts import answers as charts
from aisp_mcp.server.charts import bars, plane, timeline
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.plane import Curve, Scale, Spot
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.job import JobState

SECTIONS = ("overview", "steps", "gaps", "memory", "api", "ranges", "collectives")
MAX_OTHERS, MAX_ANSWERS = 50, 64
WITH_STACKS = ("aisp_profile_torch", "aisp_profile_nsys")
_ANSWERS: dict[tuple[str, Path, int, str], ToolAnswer] = {}


def build(request: PageRequest) -> dict[str, Any]:
    """?id= of a profile, ?before= of another to compare with, ?section= of a timeline. Raises NotFound."""
    profile = stored(request.ctx, request.word("id"))
    section = request.word("section", "overview")
    section = section if section in SECTIONS else "overview"
    said = sentences(_ask(request, profile, "aisp_profile_read", profile=str(profile.path)).result)
    before, is_trace = request.word("before"), _is_trace(profile)
    changed = traces.changed_ns(profile.path)
    return {
        "lead": said[0] if said else "",
        "more": said[1:],
        "profile": profile,
        "section": section,
        "sections": SECTIONS if profile.tool == "aisp_profile_nsys" else (),
        **_content(request, profile, section),
        "timeline": traces.timeline(profile.path, changed) if is_trace else None,
        "flame": traces.flame_graph(profile.path, changed) if profile.tool in WITH_STACKS else None,
        "before": before,
        "difference": _difference(request, before, profile),
        "perfetto": is_trace and profile.tool == "aisp_profile_torch",
        "others": _others(request, profile) if profile.tool in WITH_STACKS else [],
    }


def _ask(request: PageRequest, source: StoredProfile, tool: str, **arguments: Any) -> ToolAnswer:
    """A tool's answer about a profile, cached until the file changes, since reading a trace is slow."""
    key = tool, source.path, traces.changed_ns(source.path), repr(arguments)
    if key not in _ANSWERS:
        if len(_ANSWERS) >= MAX_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[key] = request.tool(tool, **arguments)
    return _ANSWERS[key]


def _difference(request: PageRequest, before: str, profile: StoredProfile) -> Any:
    """Flame graphs compared with another profile. Raises NotFound if there is no such profile."""
    return traces.difference(request.ctx, before, profile.reference) if before else None


def _others(request: PageRequest, profile: StoredProfile) -> list[tuple[str, str]]:
    """(reference, label) of other profiles by this tool, newest first, to compare flame graphs with."""
    rows, _ = request.ctx.store.list_jobs(JobState.SUCCEEDED, profile.tool, MAX_OTHERS, None, request.ctx.sees)
    return [
        (job.id, f"{subject(job)}, {numbers.moment(job.created_at)[:16]}")
        for job in rows
        if job.id != profile.reference
    ]


def _is_trace(profile: StoredProfile) -> bool:
    return profile.tool in WITH_STACKS and not profile.path.name.endswith(".speedscope.json")


def _content(request: PageRequest, profile: StoredProfile, section: str) -> dict[str, Any]:
    """Pictures, insights, kernels, and the answers with every figure."""
    shared: dict[str, Any] = {
        "drawings": [],
        "insights": [],
        "kernels": None,
        "answers": [],
        "failures": [],
        "operators": [],
    }
    if profile.tool == "aisp_profile_ncu":
        return shared | _ncu(request, profile)
    if profile.tool == "aisp_profile_memory":
        return shared | {"drawings": memory(profile.result), "answers": [("Memory", profile.result)]}
    if not _is_trace(profile):
        return shared | {"drawings": hottest(profile.path), "answers": [("Recording", profile.result)]}
    return shared | _trace(request, profile, section)


def _ncu(request: PageRequest, profile: StoredProfile) -> dict[str, Any]:
    roof = _ask(request, profile, "aisp_profile_roofline", profile=str(profile.path))
    summary = _ask(request, profile, "aisp_ncu_summary", report=str(profile.path))
    result = summary.result or {}
    return {
        "drawings": charts.draw("kernels", roof.result or {}),
        "insights": result.get("insights") or [],
        "kernels": launches(result.get("kernels") or []),
        **_figures([("Launches", summary), ("Roofline", roof)]),
    }


def _trace(request: PageRequest, profile: StoredProfile, section: str) -> dict[str, Any]:
    path = str(profile.path)
    if profile.tool == "aisp_profile_nsys":
        summary = _ask(request, profile, "aisp_nsys_summary", report=path, section=section)
        result = summary.result or {}
    else:
        summary = _ask(request, profile, "aisp_profile_hta", traces=[path])
        result = ((summary.result or {}).get("ranks") or [{}])[0]
    table = _ask(request, profile, "aisp_profile_kernels", profile=path)
    rows = (table.result or {}).get("kernels") or []
    has_device = bool(result.get("breakdown"))
    return {
        "drawings": time_use(result["breakdown"]) if has_device else hottest(profile.path),
        "insights": result.get("insights") or [],
        "kernels": kernels(rows),
        **_figures([("Summary", summary), *([("Kernels", table)] if rows else [])]),
        "operators": profile.result.get("operators") or [],
    }


def _figures(answers: list[tuple[str, ToolAnswer]]) -> dict[str, Any]:
    """The answers as tables, without the figures in the page's head, and those that failed."""
    return {
        "answers": [(title, _plain(answer.result)) for title, answer in answers if answer.result is not None],
        "failures": [answer for _, answer in answers if answer.error is not None],
    }


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """Unwrap a single rank, write the window as text, and leave out what the page shows elsewhere."""
    ranks = result.get("ranks") or []
    result = ranks[0] if len(ranks) == 1 else result
    left_out = ("source", "snapshot", "opening", "insights", "abstained")
    result = {name: value for name, value in result.items() if name not in left_out}
    window = result.get("window")
    if isinstance(window, dict):
        length = numbers.seconds((window["end_ns"] - window["start_ns"]) * 1e-9)
        result["window"] = f"{length}: {window['definition']}"
        result["steps"] = [{**row, "start_ns": row["start_ns"] - window["start_ns"]} for row in result.get("steps", [])]
    return result


Data = Mapping[str, Any]
SHOWN, NAME = 10, 60


def time_use(breakdown: Sequence[Data]) -> list[Drawing]:
    """Shares of a device's time, largest first; with several devices, one bar each, divided into parts."""
    if len(breakdown) > 1:
        return charts.draw("timeline", {"breakdown": breakdown})
    rows = []
    for device in breakdown:
        for key, style, words in timeline.PARTS:
            share = float(device.get(key) or 0.0)
            if share >= 0.0005:
                seconds = numbers.seconds(share * (device.get("span_ns") or 0) * 1e-9)
                rows.append(Bar(words, share, f"{numbers.percent(share)} · {seconds}", style))
    rows.sort(key=lambda row: -row.share)
    return [bars.draw("Where the time went", rows, ("part", "share of the time"))] if rows else []


def hottest(path: Path) -> list[Drawing]:
    """Frames by self weight, for a profile without a device's timeline."""
    try:
        stacks, unit = flame.stacks(path)
    except AispError:
        return []
    rows = [
        Bar(shorten(str(row["frame"]), NAME), float(row["self_share"]), numbers.percent(float(row["self_share"])))
        for row in flame.hottest(stacks, unit, SHOWN)
    ]
    return [bars.draw("Frames by their own time", rows, ("frame", "share"))] if rows else []


def kernels(rows: Sequence[Data]) -> Drawing | None:
    """The kernels that took most time, coloured by kind."""
    largest = max((float(row.get("share") or 0.0) for row in rows), default=0.0)
    items = [
        Bar(
            shorten(str(row["name"]), NAME),
            float(row.get("share") or 0.0) / largest,
            f"{numbers.percent(row.get('share'))} · {numbers.seconds((row.get('total_ns') or 0) * 1e-9)}",
            f"k-{kinds.of_device(str(row['name']))}",
            f"{row['name']}: {row.get('count')} launches, median {numbers.seconds((row.get('median_ns') or 0) * 1e-9)}",
        )
        for row in rows[:SHOWN]
    ]
    return bars.draw("Kernels by their time", items, ("kernel", "share of kernel time")) if largest else None


def launches(rows: Sequence[Data]) -> Drawing | None:
    """Launches that ncu measured, longest first."""
    longest = max((float(row.get("duration_ns") or 0.0) for row in rows), default=0.0)
    items = [
        Bar(
            shorten(str(row["kernel"]), NAME),
            float(row.get("duration_ns") or 0.0) / longest,
            f"{row.get('bound') or 'bound unknown'} · {numbers.seconds((row.get('duration_ns') or 0.0) * 1e-9)}",
            f"k-{kinds.of_device(str(row['kernel']))}",
            f"{row['kernel']}: {row.get('why') or 'no reason known'}",
        )
        for row in rows[:SHOWN]
    ]
    return bars.draw("Launches by their time", items, ("kernel", "time and what bounds it")) if longest else None


def memory(result: Data) -> list[Drawing]:
    """Allocated bytes over time, per device."""
    drawings = []
    for device in result.get("memory", []):
        points = [(float(at) * 1e-6, float(size)) for at, size in device.get("timeline", []) if size is not None]
        if len(points) > 1:
            peak = max(points, key=lambda point: point[1])
            axes = Scale("time, s", lambda value: f"{value:.3g}"), Scale("allocated", MEMORY.say)
            title = f"Memory of device {device.get('device')}"
            spot = Spot(*peak, "c1", "peak", label=f"peak {MEMORY.say(peak[1])}")
            drawings.append(plane.draw(title, axes, [spot], [Curve("roof c2", points)]))
    return drawings


def sentences(result: Data | None) -> list[str]:
    """The opening of a profile, most important first."""
    return [str(statement["text"]) for statement in (result or {}).get("opening") or []]
