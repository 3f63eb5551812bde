"""The opening of a profile's page: its sentences, where the time went as bars, and the largest kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard.figures import MEMORY
from aisp_mcp.profile.pictures import flame, kinds
from aisp_mcp.profile.readers.text import shorten
from aisp_mcp.server.charts import answers, bars, plane, timeline
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.plane import Path as Line
from aisp_mcp.server.charts.plane import Scale, Spot
from aisp_mcp.server.text import numbers

Data = Mapping[str, Any]
SHOWN, NAME = 10, 60


def time_use(breakdown: Sequence[Data]) -> list[Drawing]:
    """Shares of a device's time, largest first; with several devices, one bar each, divided into parts."""
    if len(breakdown) > 1:
        return answers.draw("timeline", {"breakdown": breakdown})
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
            drawings.append(plane.draw(title, axes, [spot], [Line("roof c2", points)]))
    return drawings


def sentences(result: Data | None) -> list[str]:
    """The opening of a profile, most important first."""
    return [str(statement["text"]) for statement in (result or {}).get("opening") or []]
