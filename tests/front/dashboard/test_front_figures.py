"""Charts of the pages: marks of an axis fit a narrow screen, one value has a sensible surrounding, names differ."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from aisp_mcp.front.dashboard import figures
from aisp_mcp.runs import leaderboards
from aisp_mcp.runs.history import Axis, history
from aisp_mcp.server.charts import ratios
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.store.records.verdict_row import VerdictRow

AT = 1.79e9
TIMES = {"baseline_s": 2.0, "candidate_s": 1.0}
NARROW_PX, CHAR_PX = 360, 6.7  # of a tick at 12 pixels


def rulings(values: list[float], revision: str | None = None) -> list[VerdictRow]:
    """Newest first, a day apart."""
    about = {"run_id": "r", "chapter": "ch07", "target": "ch07:x", "verdict": "faster", "goal": "speed"}
    rows = [
        VerdictRow(
            seq=n, created_at=AT + 86_400 * n, preset="default", ratio=value, low=value * 0.9, high=value * 1.1, **about
        )
        for n, value in enumerate(values)
    ]
    return [row.model_copy(update={"revision": revision}) for row in reversed(rows)]


def ticks(results: Drawing) -> list[tuple[str, float, str]]:
    """(text, x in per cent, anchor) of every mark and of the axes' names."""
    marks = [
        shape for shape in results.shapes if shape.tag == "text" and shape.attributes["class"] == "tick" and shape.text
    ]
    places = [float(str(mark.attributes["x"]).removesuffix("%")) for mark in marks]
    return [
        (one.text, x, str(one.attributes.get("text-anchor", "start"))) for one, x in zip(marks, places, strict=True)
    ]


def test_a_label_covers_neither_its_axis_nor_the_title() -> None:
    name = "slow:nearest@e6d54b_fast"
    rows = [
        {"target": name, "verdict": "faster", "ratio": ratio, "memory_ratio": memory, "low": None, "high": None}
        for ratio, memory in ((2.0, 1.8), (80.0, 1.3))
    ]
    drawing = figures.tradeoffs(rows)
    assert drawing
    texts = [shape for shape in drawing.shapes if shape.tag == "text"]
    [title] = [shape for shape in texts if shape.text == "memory ratio"]
    first = next(shape for shape in texts if shape.text == name)
    assert float(str(first.attributes["x"]).removesuffix("%")) >= float(str(title.attributes["x"]).removesuffix("%"))
    assert float(first.attributes["y"]) > float(title.attributes["y"]) + 12


def test_a_candidate_measured_at_two_presets_is_one_point() -> None:
    rows = [
        row.model_copy(update={"preset": preset, "baseline_bytes": 2, "candidate_bytes": 1} | TIMES)
        for preset, row in zip(("release", "default"), rulings([2.0, 2.1]), strict=True)
    ]
    assert [row["preset"] for row in leaderboards.tradeoffs(rows)] == ["release"]


@pytest.mark.parametrize("values", [[2.0], [0.5, 20_000.0], [1.0, 1.001], [130.0, 180.0, 250.0]])
def test_no_mark_is_cut_on_a_narrow_screen(values: list[float]) -> None:
    [series] = history(rulings(values), Axis.TIME)
    drawing = figures.history(series)
    assert drawing
    marks = ticks(drawing)
    assert len(marks) >= 4
    for text, x, anchor in marks:
        at, wide = NARROW_PX * x / 100, CHAR_PX * len(text)
        left = at - {"end": wide + 6, "middle": wide / 2, "start": 0}[anchor]
        assert left >= -2, (text, x, anchor)
        assert left + wide <= NARROW_PX + 2, (text, x, anchor)


def test_a_single_run_stands_within_its_minute() -> None:
    [series] = history(rulings([2.0]), Axis.TIME)
    drawing = figures.history(series)
    assert drawing
    marks = {text for text, _, _ in ticks(drawing) if re.fullmatch(r"\d\d:\d\d:\d\d", text)}
    minute = {datetime.fromtimestamp(AT + shift, UTC).strftime("%H:%M") for shift in (-30, 0, 30)}
    assert marks
    assert {mark[:5] for mark in marks} <= minute


def test_a_single_commit_has_one_mark() -> None:
    [series] = history(rulings([2.0, 2.1], "a" * 40), Axis.COMMIT)
    drawing = figures.history(series)
    assert drawing
    assert [text for text, _, _ in ticks(drawing)].count("a" * 10) == 1
    assert history(rulings([2.0]), Axis.COMMIT)[0].left_out == 1


def test_names_that_were_cut_still_differ() -> None:
    names = ["ch20:decode_loop_last_logits", "ch20:decode_loop_static_cache_last_logits", "ch20:decode_loop"]
    drawing = ratios.draw([RatioRow(name, "faster", 2.0, 1.9, 2.1, 0.01) for name in names])
    shown = [shape.text for shape in drawing.shapes if shape.attributes["class"] == "name"]
    assert len(set(shown)) == 3
    assert max(map(len, shown)) <= ratios.LABEL_CHARS
