"""Charts of the pages, drawn from records. Missing values are left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from aisp_mcp.front.dashboard.words import ordered
from aisp_mcp.judge.records.endtoend import EndToEnd
from aisp_mcp.judge.records.workload import Workload
from aisp_mcp.runs.history import SHORT, Series, name
from aisp_mcp.server.charts import bars, plane, ratios
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing, box, dot, line, to_decoration
from aisp_mcp.server.charts.plane import Curve, IntervalBand, Scale, Spot
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.text import numbers
from aisp_mcp.store.measurements import Ceiling

RAIL = (0.2, 30.0)  # the ratios at the ends of a table cell's picture
RATIO = Scale("ratio of baseline to candidate", numbers.ratio, log=True)
SECONDS = Scale("time per call", numbers.seconds, log=True)
MEMORY = Scale("peak memory", lambda value: numbers.rate(value, "B"), log=True)
HOUR_S, DAY_S = 3600.0, 86_400.0
_MARKS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, HOUR_S, 6 * HOUR_S, DAY_S, 2 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)


def time_axis(times: Sequence[float]) -> Scale:
    """Axis for UTC times in seconds: dates, or times of day for a short span."""
    span = max(times) - min(times)
    pattern = "%Y-%m-%d" if span > 3 * DAY_S else "%m-%d %H:%M" if span > HOUR_S else "%H:%M:%S"
    return Scale("UTC", lambda at: datetime.fromtimestamp(at, UTC).strftime(pattern), steps=_MARKS_S, around=30.0)


def rail(row: Any) -> str:
    """A table cell's picture of a ratio: interval, noise floor and 1×, on one logarithmic axis for all rows.

    It is decoration, because the row contains the same figures, so screen readers skip it.
    """
    interval = (row.low or row.ratio, row.high or row.ratio)
    shapes = [line("grid", 0, 11, 100, 11), line("one", _at(1.0), 2, _at(1.0), 20)]
    if row.ratio:
        floor = 1 + (row.noise_floor or 0.0)
        shapes += [
            box("floor", _at(1 / floor), 5, _at(floor), 17),
            line(f"span {row.verdict}", _at(interval[0]), 11, _at(interval[1]), 11),
            dot(f"spot {row.verdict}{' provisional' * row.provisional}", _at(row.ratio), 11, "", 5),
        ]
    return to_decoration(shapes, 22)


def _at(ratio: float) -> float:
    """Position of a ratio in per cent; those beyond the axis are put on its end."""
    low, high = map(math.log, RAIL)
    return 2 + 96 * (min(max(math.log(ratio), low), high) - low) / (high - low)


def of_counts(counts: Mapping[str, int]) -> Drawing | None:
    """Numbers of verdicts as parts of one bar."""
    parts = [(name, number, name) for name, number in ordered(counts).items()]
    return bars.stack("Verdicts", parts) if parts else None


def of_workload(workload: Workload) -> Drawing:
    """Shares of a workload's time by regime, each with its ratio and interval."""
    rows = []
    for regime in workload.regimes:
        interval = regime.interval
        ends = f" [{numbers.ratio(interval.low)}, {numbers.ratio(interval.high)}]" if interval else ""
        value = f"{100 * regime.share:.2g} % of the time · {numbers.ratio(regime.ratio)}{ends} {regime.verdict}"
        rows.append(Bar(regime.label, regime.share, value, regime.verdict, regime.sentence))
    return bars.draw("Time of the workload by regime", rows, ("regime", "share, ratio [interval]"))


def of_program(pair: RatioRow, program: EndToEnd) -> Drawing:
    """The ratio of a pair alone, what that predicts for its user's program, and what the program did."""
    low, high = (program.interval.low, program.interval.high) if program.interval else (None, None)
    rows = [pair]
    if program.predicted is not None:
        share = f" from {numbers.percent(program.share)}" if program.share is not None else ""
        rows.append(RatioRow(f"predicted{share}", "expected", program.predicted))
    rows.append(RatioRow(program.program, program.verdict, program.ratio, low, high, program.noise_floor))
    return ratios.draw(rows, "Ratio alone, predicted and in the program")


def history(series: Series) -> Drawing | None:
    """Ratios of one target over time or commits, with the levels between steps and the noise floor as a band."""
    if not series.rulings:
        return None
    steps = {begin: level for begin, _, level in series.levels if begin}
    marked = {len(series.rulings) - 1: series.rulings[-1].ratio, **steps}
    spots = [
        Spot(
            x,
            row.ratio or 0.0,
            f"{row.verdict}{' provisional' * row.provisional}",
            f"{numbers.moment(row.created_at)}{', ' * bool(row.revision)}{name(row)}: {numbers.ratio(row.ratio)} "
            f"{row.verdict}",
            y_ends=(row.low, row.high) if row.low and row.high else None,
            label=numbers.ratio(marked[number]) if number in marked else "",
        )
        for number, (row, x) in enumerate(zip(series.rulings, series.positions, strict=True))
    ]
    floor, paths, bands = series.floor, [], []
    for begin, end, level in series.levels:
        ends = series.positions[begin], series.positions[end - 1]
        paths.append(Curve("roof c2", [(ends[0], level), (ends[1], level)], f"level {numbers.ratio(level)}"))
        bands.append(
            IntervalBand(ends, (level / (1 + floor), level * (1 + floor)), f"noise floor {numbers.percent(floor)}")
        )
    axis = commit_axis(series.commits) if series.commits else time_axis(series.positions)
    return plane.draw("Ratio over commits" if series.commits else "Ratio over time", (axis, RATIO), spots, paths, bands)


def commit_axis(commits: Sequence[str]) -> Scale:
    """Axis for commits by their index, oldest first."""

    def say(at: float) -> str:
        return commits[round(at)][:SHORT] if 0 <= round(at) < len(commits) else ""

    return Scale("commit, oldest first", say, whole=True, around=1.0)


def pareto(front: Mapping[str, Any]) -> Drawing | None:
    """Time against memory of one target's variants; those on the frontier in colour, dominated ones in grey."""
    spots = []
    for point in front.get("points", []):
        if not point.get("memory_bytes") or not point.get("time_s"):
            continue
        interval = point.get("time_interval_s") or []
        style = "c2" if point["frontier"] else "inconclusive"
        name = f"{point['name']} ({'not proven dominated' if point['frontier'] else 'dominated'})"
        x_ends = (interval[0], interval[1]) if len(interval) == 2 else None
        label = point["name"].partition(":")[2] or point["name"]
        spots.append(Spot(point["time_s"], point["memory_bytes"], style, name, x_ends=x_ends, label=label))
    title = f"{front.get('target')} on {front.get('machine')}"
    return plane.draw(title, (SECONDS, MEMORY), spots) if spots else None


def tradeoffs(rows: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Time ratio with its interval against memory ratio; above 1 the candidate is better."""
    axes = Scale("time: baseline over candidate", numbers.ratio, True), Scale("memory ratio", numbers.ratio, True)
    spots = [
        Spot(
            row["ratio"] or row["time_ratio"],
            row["memory_ratio"],
            row["verdict"],
            f"{row['target']}: {row['verdict']}",
            x_ends=(row["low"], row["high"]) if row.get("low") and row.get("high") else None,
            label=row["target"],
        )
        for row in rows
    ]
    return plane.draw("Time against memory", axes, spots) if spots else None


def scaling(curve: Mapping[str, Any]) -> Drawing | None:
    """Measured points of one program over workers or sizes, joined in order."""
    points = [(float(x), float(y)) for x, y in curve.get("points", []) if x > 0 and y > 0]
    if not points:
        return None
    over = curve.get("over")
    y_axis = SECONDS if over == "size" else Scale("throughput", lambda value: f"{value:.3g}", log=True)
    axes = Scale(f"{over}", lambda value: f"{value:g}", log=True), y_axis
    spots = [Spot(x, y, "c2", f"{x:g}: {y_axis.say(y)}", label=y_axis.say(y)) for x, y in points]
    return plane.draw(f"{curve.get('label')}", axes, spots, [Curve("grid", points)])


def ceilings(rows: Sequence[Ceiling]) -> Drawing | None:
    """One kind of probe on one device over time, with the best stored value as a line."""
    if not rows:
        return None
    best, unit = max(row.value for row in rows), rows[0].unit
    scale = Scale("measured", lambda value: numbers.quantity(value, unit))
    spots = [Spot(row.measured_at, row.value, "c2", f"{numbers.moment(row.measured_at)}") for row in rows]
    times = [row.measured_at for row in rows]
    line = Curve("one", [(min(times), best), (max(times), best)], f"best {scale.say(best)}")
    return plane.draw(f"{rows[0].kind} on {rows[0].device}", (time_axis(times), scale), spots, [line])
