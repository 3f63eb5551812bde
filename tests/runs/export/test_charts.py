"""Drawings: figures stand where they belong, nothing leaves its frame, and no text from outside is ever markup."""

from __future__ import annotations

import json
import math
import typing
from xml.etree import ElementTree

import pytest
from export_runs import HOSTILE, comparison
from hypothesis import given, settings
from hypothesis import strategies as st

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import html
from aisp_mcp.server.charts import answers, drawing, ratios, roofline, timeline
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.charts.roofline import Roof, RooflinePoint
from aisp_mcp.server.charts.timeline import TimelineBar

PLACES = {"x", "x1", "x2", "cx"}
any_text = st.text(max_size=30) | st.just(HOSTILE)
any_number = st.floats() | st.floats(0.5, 2) | st.none()
rate = st.floats(1e-3, 1e18)


def places(drawn: Drawing) -> list[float]:
    """Every horizontal place, in per cent."""
    return [float(str(v).rstrip("%")) for s in drawn.shapes for name, v in s.attributes.items() if name in PLACES]


def heights(drawn: Drawing) -> list[float]:
    return [float(v) for s in drawn.shapes for name, v in s.attributes.items() if name in {"y", "y1", "y2", "cy"}]


def inside(drawn: Drawing) -> None:
    assert all(math.isfinite(x) and 0 <= x <= 100 for x in places(drawn))
    assert all(math.isfinite(y) and -1 <= y <= drawn.height for y in heights(drawn))
    json.dumps(drawing.to_data(drawn), allow_nan=False)


def spots(drawn: Drawing) -> list[float]:
    return [float(str(s.attributes["cx"]).rstrip("%")) for s in drawn.shapes if s.tag == "circle"]


def test_ratios_stand_where_their_numbers_are() -> None:
    rows = [
        RatioRow("a", "faster", 2.0, 1.9, 2.1, 0.01),
        RatioRow("b", "slower", 0.5, 0.4, 0.6),
        RatioRow("c", "invalid"),
    ]
    drawn = ratios.draw(rows)
    inside(drawn)
    fast, slow = spots(drawn)
    one = next(s for s in drawn.shapes if str(s.attributes["class"]).startswith("one"))
    middle = float(str(one.attributes["x1"]).rstrip("%"))
    assert fast - middle == pytest.approx(middle - slow, abs=0.05)
    spans = [s.attributes for s in drawn.shapes if str(s.attributes["class"]).startswith("span")]
    assert float(str(spans[0]["x1"])[:-1]) < fast < float(str(spans[0]["x2"])[:-1])
    ticks = {s.text: s.attributes["x"] for s in drawn.shapes if s.attributes["class"] == "tick"}
    assert float(str(ticks["2×"])[:-1]) == pytest.approx(fast, abs=0.05)
    assert "invalid, no ratio" in [s.text for s in drawn.shapes]

    assert [row[1] for row in drawn.rows] == ["faster", "slower", "invalid"]


def test_a_row_of_a_chart_has_words_for_people_that_fit_a_phone() -> None:
    rows = [
        ratios.RatioRow("fast:nearest_slow", "slower", 0.28, 0.13, 0.59, 1.09, at_least=True, provisional=True),
        ratios.RatioRow("slow:nearest_fast", "could_not_judge"),
    ]
    texts = [shape.text for shape in ratios.draw(rows).shapes]
    assert {"at most 0.28× ○ slower", "could not judge, no ratio"} <= set(texts)


@settings(max_examples=80)
@given(name=any_text, ratio=any_number, low=any_number, high=any_number, floor=any_number)
def test_no_number_breaks_the_ratios(
    name: str, ratio: float | None, low: float | None, high: float | None, floor: float | None
) -> None:
    drawn = ratios.draw([RatioRow(name, "faster", ratio, low, high, floor), RatioRow("u", "faster", 1.2, 1.1, 1.3)])
    inside(drawn)
    assert 1 <= sum(s.attributes["class"] == "tick" for s in drawn.shapes) <= 9
    ElementTree.fromstring(drawing.to_file(drawn))


def test_a_point_under_a_roof_lies_under_it() -> None:
    points = [RooflinePoint("add", 0.08, 3e11, 0.9, "memory"), RooflinePoint("matmul", 500, 6e14, 0.75, "compute")]
    drawn = roofline.draw("Roofline of x", 4e12, [Roof("bf16", 8e14), Roof("fp32", 6e13)], points)
    inside(drawn)
    circles = [s.attributes for s in drawn.shapes if s.tag == "circle"]
    flat = next(s.attributes for s in drawn.shapes if s.text.startswith("bf16") and s.tag == "line")
    slope = next(s.attributes for s in drawn.shapes if s.tag == "line" and s.attributes["class"] == "roof c6")
    assert float(circles[1]["cy"]) > float(flat["y1"])  # pixels grow downwards
    assert str(flat["x1"]) == str(slope["x2"])
    assert flat["y1"] == slope["y2"]
    assert drawn.rows[0] == ("1", "add", "0.08", "300 GFLOP/s", "90 %", "memory")


@settings(max_examples=80)
@given(band=rate, peaks=st.lists(rate, min_size=1, max_size=5), points=st.lists(st.tuples(rate, rate), max_size=9))
def test_no_rate_breaks_the_roofline(band: float, peaks: list[float], points: list[tuple[float, float]]) -> None:
    roofs = [Roof(f"r{n}", peak) for n, peak in enumerate(peaks)]
    inside(roofline.draw("x", band, roofs, [RooflinePoint("p", at, up, None, "compute") for at, up in points]))


@settings(max_examples=80)
@given(shares=st.tuples(*[st.floats(0, 1)] * len(timeline.PARTS)), seconds=st.floats(0, 1e6))
def test_shares_never_leave_their_bar(shares: tuple[float, ...], seconds: float) -> None:
    keyed = {key: share for (key, _, _), share in zip(timeline.PARTS, shares, strict=True)}
    inside(timeline.draw("t", [TimelineBar("GPU 0", seconds, keyed)]))


def test_text_from_outside_is_only_ever_text() -> None:
    run = html.of_comparisons([comparison(HOSTILE, 2.0, Verdict.FASTER), comparison(HOSTILE, None, Verdict.INVALID)])
    roof = roofline.draw(HOSTILE, 1e12, [Roof(HOSTILE, 1e14)], [RooflinePoint(HOSTILE, 1.0, 1e11, 0.5, HOSTILE)])
    line = timeline.draw(HOSTILE, [TimelineBar(HOSTILE, 1.0, {"compute": 1.0})])
    for drawn in (run, roof, line):
        text = drawing.to_file(drawn)
        root = ElementTree.fromstring(text)
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            "svg", "style", "line", "rect", "circle", "text", "title",
        }  # fmt: skip
        names = {name for element in root.iter() for name in element.attrib}
        assert not any(name in ("href", "src", "style") or name.startswith("on") for name in names)
        assert "\u202e" not in text
        data = json.dumps(drawing.to_data(drawn))
        assert "\\u202e" not in data
        assert HOSTILE not in [value for shape in drawn.shapes for value in shape.attributes.values()]


def test_a_picture_for_programs_names_one_colour_each() -> None:
    text = drawing.to_file(ratios.draw([RatioRow("a", "faster", 2.0)]))
    assert "light-dark" not in text
    assert "var(" not in text
    assert ".faster, .c0 { color: #08694f; }" in text


def test_every_chart_draws_and_a_shortened_answer_draws_what_it_has() -> None:
    known = set(typing.get_args(answers.Chart))
    assert known == set(answers._DRAW)
    for name in typing.get_args(answers.Chart):
        assert answers.draw(name, {}) == []
        assert answers.draw(name, {"rulings": None, "points": [None], "breakdown": [], "ranks": [{}]}) == []
    cut = {"rulings": [{"target": "a", "verdict": "same", "ratio": 1.0, "interval": None, "noise_floor": None}]}
    assert spots(answers.draw("verdicts", cut)[0])
