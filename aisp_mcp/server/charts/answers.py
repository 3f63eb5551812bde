"""From the result of a tool, as JSON data, to its drawings. Missing data is left out, never made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from aisp_mcp.server.charts import plane, ratios, roofline, timeline
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.plane import Curve, Scale, Spot
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.charts.roofline import Roof, RooflinePoint, usable
from aisp_mcp.server.charts.timeline import TimelineBar, TimelineLane, TimelineSpan
from aisp_mcp.server.text import numbers

Chart = Literal["verdicts", "changes", "roofline", "kernels", "timeline", "recording", "ranks", "loads"]
Data = Mapping[str, Any]
MOST_RATIOS, MOST_POINTS, MOST_BARS, MOST_SPANS = 40, 20, 16, 60


def draw(chart: Chart, result: Data) -> list[Drawing]:
    """The drawings of a tool's result; none if it contains no figures to draw."""
    return _DRAW[chart](result)


def _verdicts(result: Data) -> list[Drawing]:
    rows = []
    for item in _items(result, "rulings")[:MOST_RATIOS]:
        low, high = (*_list(item, "interval"), None, None)[:2]
        row = RatioRow(
            _text(item, "target"), _text(item, "verdict"), item.get("ratio"), low, high, item.get("noise_floor")
        )
        bound, hint = bool(item.get("at_least")), bool(item.get("provisional"))
        rows.append(replace(row, at_least=bound, provisional=hint))
    return [ratios.draw(rows)] if rows else []


def _changes(result: Data) -> list[Drawing]:
    rows = []
    for item in _items(result, "changes")[:MOST_RATIOS]:
        interval = item.get("interval") or {}
        name = "_".join(part for part in (_text(item, "target"), _text(item, "candidate")) if part)
        ends = interval.get("low"), interval.get("high")
        rows.append(RatioRow(name, _text(item, "verdict"), item.get("change"), *ends, item.get("noise_floor")))
    return [ratios.draw(rows, "Ratio of the later run to the earlier one")] if rows else []


def _roofline(result: Data) -> list[Drawing]:
    """Measured ceilings and operations of a device."""
    band = _median(result.get("bandwidth"))
    roofs = [Roof(_text(item, "name"), rate) for item in _items(result, "ceilings") if (rate := _median(item))]
    if band is None or not roofs:
        return []
    points = []
    for item in _items(result, "points")[:MOST_POINTS]:
        intensity, rate = usable(item.get("intensity")), _median(item)
        if intensity and rate:
            points.append(
                RooflinePoint(_text(item, "name"), intensity, rate, item.get("share_of_roof"), _text(item, "bound"))
            )
    kind = _text(result, "points_dtype")
    title = f"Roofline of {_text(result, 'device')}, measured" + (f", operations in {kind}" if kind and points else "")
    return [roofline.draw(title, band, roofs, points)]


def _kernels(result: Data) -> list[Drawing]:
    """Launches under the roofs in their own report; of several clocks, the highest."""
    points, peaks, bands = [], dict[str, float](), []
    for item in _items(result, "points")[:MOST_POINTS]:
        intensity, rate = usable(item.get("intensity")), usable(item.get("flop_per_s"))
        peak, band = usable(item.get("peak_flop_per_s")), usable(item.get("peak_bytes_per_s"))
        if band:
            bands.append(band)
        if peak:
            peaks[_text(item, "unit")] = max(peak, peaks.get(_text(item, "unit"), 0.0))
        if intensity and rate:
            points.append(
                RooflinePoint(_text(item, "kernel"), intensity, rate, item.get("of_roof"), _text(item, "side"))
            )
    if not peaks or not bands:
        return []
    roofs = [Roof(unit, peak) for unit, peak in peaks.items()]
    return [roofline.draw("Roofline of the profiled kernels, roofs from their report", max(bands), roofs, points)]


def _timeline(result: Data) -> list[Drawing]:
    """A profile's summary: shares per device, and its steps or longest gaps if it shows them."""
    bars = [_bar(item, f"GPU {item.get('device')}") for item in _items(result, "breakdown")[:MOST_BARS]]
    window = result.get("window") or {}
    begin, end = (window.get(name) or 0 for name in ("start_ns", "end_ns"))
    spans = _SPANS.get(_text(result, "section"))
    lanes = []
    if spans is not None:
        row_spans = [spans(item, begin) for item in _items(result, "rows")[:MOST_SPANS] if "start_ns" in item]
        lanes = [TimelineLane(_text(result, "section"), row_spans)] if row_spans else []
    if not bars and not lanes:
        return []
    return [timeline.draw("Where the time of the window went", bars, lanes, (end - begin) * 1e-9)]


def _step(row: Data, begin: int) -> TimelineSpan:
    start, length = row["start_ns"] - begin, row.get("duration_ns") or 0
    busy = row.get("busy_ns")
    text = f"{_text(row, 'name')}: {numbers.seconds(length * 1e-9)}"
    if busy is not None:  # unknown for a trace without a device
        text += f", busy {numbers.seconds(busy * 1e-9)}"
    return TimelineSpan(start * 1e-9, (start + length) * 1e-9, "busy", text)


def _gap(row: Data, begin: int) -> TimelineSpan:
    start, length = row["start_ns"] - begin, row.get("duration_ns") or 0
    text = f"gap of {numbers.seconds(length * 1e-9)} ({_text(row, 'cause')}), before {_text(row, 'before')}"
    return TimelineSpan(start * 1e-9, (start + length) * 1e-9, f"idle-{_text(row, 'cause')}", text)


_SPANS: Mapping[str, Callable[[Data, int], TimelineSpan]] = {"steps": _step, "gaps": _gap}


def _recording(result: Data) -> list[Drawing]:
    """The summary inside the answer of a tool that recorded a profile."""
    summary = result.get("summary")
    return _timeline(summary) if isinstance(summary, Mapping) else []


def _ranks(result: Data) -> list[Drawing]:
    """One bar per rank and device."""
    bars = []
    for number, rank in enumerate(_items(result, "ranks")):
        label = number if rank.get("rank") is None else rank["rank"]
        bars += [_bar(item, f"rank {label}, GPU {item.get('device')}") for item in _items(rank, "breakdown")]
    return [timeline.draw("Where the time of each rank went", bars[:MOST_BARS])] if bars else []


def _bar(data: Data, name: str) -> TimelineBar:
    shares = {key: float(data.get(key) or 0.0) for key, _, _ in timeline.PARTS}
    return TimelineBar(name, (data.get("span_ns") or 0) * 1e-9, shares)


def _loads(result: Data) -> list[Drawing]:
    """Load curves of one or two servers: what each load gives, and how long its requests take. Numbers of requests at
    once are joined in their order.
    """
    pair = result.get("pair") or {}
    spots, curves = list[Spot](), dict[tuple[str, str], list[tuple[float, float]]]()
    for row in _items(result, "servers"):
        x, y = (_figures(row).get(name) for name in ("output tokens", "latency"))
        if not x or not y or not x.get("value") or not y.get("value"):
            continue
        server, load = (_text(row, "url"), _text(row, "model")), _text(row, "load")
        curve = curves.setdefault(server, [])
        at = list(curves).index(server)
        who = ("baseline", "candidate")[at % 2] if pair else "server"
        if load.startswith("concurrency"):
            curve.append((x["value"], y["value"]))
        short = load.removeprefix("concurrency ")
        text = f"{who}, {load}"
        label = text if len(curve) == 1 else short
        spots.append(Spot(x["value"], y["value"], ("c2", "c1")[at % 2], text, _pair(x), _pair(y), label=label))
    if not spots:
        return []
    looks = zip(("c2", "c1"), curves.items(), strict=False)
    paths = [Curve(f"roof {look}", curve, server[0]) for look, (server, curve) in looks]
    axes = (
        Scale("output tokens per second", lambda value: f"{value:.3g}"),
        Scale("median latency", numbers.seconds, log=True),
    )
    sentence = _text(pair, "sentence") if pair else _text(result, "sentence")
    return [plane.draw(f"Load curve: {sentence}", axes, spots, paths)]


def _figures(server: Data) -> dict[str, Data]:
    return {_text(row, "name"): row for row in _items(server, "metrics")}


def _pair(metric: Data) -> tuple[float, float] | None:
    ends = _list(metric, "interval")
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] > 0 else None


_DRAW: Mapping[str, Callable[[Data], list[Drawing]]] = {
    "verdicts": _verdicts,
    "changes": _changes,
    "roofline": _roofline,
    "kernels": _kernels,
    "timeline": _timeline,
    "recording": _recording,
    "ranks": _ranks,
    "loads": _loads,
}


def _items(data: Data, name: str) -> list[Data]:
    """The records of a list; a shortened answer may lack it, or have null for parts of a row."""
    return [item for item in data.get(name) or [] if isinstance(item, Mapping)]


def _list(data: Data, name: str) -> list[Any]:
    items = data.get(name)
    return items if isinstance(items, list) else []


def _text(data: Data, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _median(placed: Any) -> float | None:
    """The median of a measured rate."""
    rate = placed.get("rate") if isinstance(placed, Mapping) else None
    return usable(rate.get("median")) if isinstance(rate, Mapping) else None
