"""The opening of a planner's answer: its headline, and its parts as bars: time of a step, memory, formats, effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aisp_mcp.front.cli import format
from aisp_mcp.server.charts import bars
from aisp_mcp.server.charts.bars import Bar
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.text import numbers

Data = Mapping[str, Any]
TOTAL = "total"
STYLES = ("c2", "c0", "c4", "c1", "c3", "c5", "c6")  # of parts, in order
MOST = 12


def lead(tool: str, result: Data) -> str:
    """The answer in a sentence; empty if the planner's answer has none."""
    answer = result.get("answer")
    answer = answer if isinstance(answer, Mapping) else {}
    if isinstance(answer.get("headline"), str):
        return str(answer["headline"])
    make = _LEADS.get(tool)
    return make(answer) if make and answer else ""


def drawings(result: Data) -> list[Drawing]:
    """The best plan's step and memory, formats, and techniques, if the answer has them."""
    answer = result.get("answer")
    if not isinstance(answer, Mapping):
        return []
    best: Data = next((answer[name] for name in ("best", "rate") if isinstance(answer.get(name), Mapping)), {})
    step: Data = next((source["step"] for source in (best, answer) if isinstance(source.get("step"), Mapping)), {})
    memory: Data = next((answer[name] for name in ("memory", "fit") if isinstance(answer.get(name), Mapping)), {})
    limit = answer.get("usable_bytes") or memory.get("capacity_bytes")
    drawings = [_step(step), _memory(memory.get("items") or [], limit), _formats(answer.get("formats") or [])]
    return [*filter(None, drawings), *techniques(answer.get("techniques") or [])]


def _step(step: Data) -> Drawing | None:
    """Parts of a step's time; names end in _s, or the record has a total."""
    times = {
        name.removesuffix("_s"): float(value)
        for name, value in step.items()
        if isinstance(value, int | float) and not name.endswith("per_s") and (name.endswith("_s") or TOTAL in step)
    }
    total = times.pop(TOTAL, 0.0)
    parts = sorted(((value, name) for name, value in times.items() if value > 0), reverse=True)
    if not total or not parts:
        return None
    rows = [
        Bar(format.label(name), value / total, f"{numbers.percent(value / total)} · {numbers.seconds(value)}", style)
        for (value, name), style in zip(parts, _cycle(len(parts)), strict=True)
    ]
    return bars.draw(f"Time of a step: {numbers.seconds(total)}", rows, ("part", "share"))


def _memory(items: Sequence[Data], limit: float | None) -> Drawing | None:
    """Bytes by purpose, relative to the device's memory."""
    sizes = [(float(item.get("bytes") or 0), str(item.get("name")), str(item.get("how") or "")) for item in items]
    total = sum(size for size, _, _ in sizes)
    if not total:
        return None
    whole = max(limit or 0.0, total)
    rows = [
        Bar(
            name,
            size / whole,
            f"{numbers.percent(size / total)} · {numbers.size(round(size))}",
            style,
            f"{name}: {how}",
        )
        for (size, name, how), style in zip(sorted(sizes, reverse=True), _cycle(len(sizes)), strict=True)
    ]
    of_limit = f" of {numbers.size(round(limit))} usable" if limit else ""
    return bars.draw(f"Memory: {numbers.size(round(total))}{of_limit}", rows[:MOST], ("part", "size"))


def _formats(formats: Sequence[Data]) -> Drawing | None:
    speeds = [(str(row.get("name")), float(row.get("tokens_per_s_per_gpu") or 0.0), row) for row in formats]
    largest = max((speed for _, speed, _ in speeds), default=0.0)
    rows = [
        Bar(
            name,
            speed / largest,
            f"{speed:,.0f} · {numbers.size(row.get('weight_bytes'))} on {row.get('least_gpus')} GPUs",
            text=f"{name}: {row.get('risk')}",
        )
        for name, speed, row in speeds[:MOST]
    ]
    return bars.draw("Predicted tokens/s/GPU, and weights", rows, ("format", "speed")) if largest else None


def techniques(rows: Sequence[Data]) -> list[Drawing]:
    """Published effects of techniques as bands, and this machine's measurements as bars."""
    pairs = [(row, row.get("measured")) for row in rows[:MOST]]
    effects = [max([*(technique.get("effect") or [0.0]), measured or 0.0]) for technique, measured in pairs]
    largest = max(effects, default=0.0)
    if not largest:
        return []
    items = []
    for technique, measured in pairs:
        low, high = (technique.get("effect") or [0.0, 0.0])[:2]
        words = f"published {numbers.ratio(low)} to {numbers.ratio(high)}"
        value = f"measured here {numbers.ratio(measured)}, {words}" if measured else words
        length, style = (measured, "c0") if measured else (low, "c2")
        band = (low / largest, high / largest)
        items.append(Bar(technique["name"], length / largest, value, style, str(technique.get("what")), band))
    return [bars.draw("Effect of each technique", items, ("technique", "factor"))]


def _cycle(number: int) -> list[str]:
    return [STYLES[index % len(STYLES)] for index in range(number)]


def recommended(answer: Data) -> str:
    """The first technique, with its published effect."""
    rows = answer.get("techniques") or []
    if not rows:
        return "No technique of the catalogue fits this machine and goal."
    first = rows[0]
    low, high = (first.get("effect") or [None, None])[:2]
    return f"First: {first['name'].replace('-', ' ')}, published {numbers.ratio(low)} to {numbers.ratio(high)}."


_LEADS: Mapping[str, Callable[[Data], str]] = {
    "aisp_optimize_techniques": recommended,
}
