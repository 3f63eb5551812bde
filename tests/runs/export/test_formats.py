"""Contents that each format must hold; no text from a benchmark does anything in any of them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from export_runs import HOSTILE, comparison, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.runs.export import html, markdown, tables
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Failure, Run


@pytest.fixture
def honest() -> Run:
    """Every verdict once, a skip and a failure."""
    ratios = {"faster": 2.5, "slower": 0.5, "same": 1.001, "inconclusive": 1.03}
    words = [comparison(f"ch01:{v.value}", ratios.get(v.value), v) for v in Verdict]
    skipped = [Skip(target="ch02:gpu", code="NO_GPU", missing="1 GPU")]
    failed = [Failure(target="ch03:bad", code="RAISED", message="it raised", hint="correct it")]
    return run_of(*words, skipped=skipped, failed=failed)


@pytest.fixture
def hostile() -> Run:
    """Names, sentences, flags, evidence and environment written by an enemy."""
    flags = [Flag(code=HOSTILE, severity=HOSTILE, message=HOSTILE, evidence={HOSTILE: HOSTILE})]
    more = {"candidate": HOSTILE, "flags": flags, "disclosed": {HOSTILE: HOSTILE}, "isolation": HOSTILE}
    bad = comparison(HOSTILE, 2.0, Verdict.FASTER, HOSTILE, **more)
    nothing = comparison(HOSTILE, None, Verdict.INVALID, HOSTILE, **more)
    failed = [Failure(target=HOSTILE, code=HOSTILE, message=HOSTILE, hint=HOSTILE)]
    return run_of(
        bad, nothing, preset=HOSTILE, environment={HOSTILE: {HOSTILE: [HOSTILE]}}, failed=failed,
        skipped=[Skip(target=HOSTILE, code=HOSTILE, missing=HOSTILE)],
    )  # fmt: skip


class Tags(HTMLParser):
    """All tags and attributes, and the text between them."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def test_html_shows_every_verdict_skip_and_failure(honest: Run) -> None:
    page = Tags(html.to_html(honest))
    for verdict in Verdict:
        assert f"ch01:{verdict.value}" in page.text
        assert f"1 {verdict.value}" in page.text
    assert all(word in page.text for word in ("NO_GPU", "1 GPU", "RAISED", "it raised", "correct it"))


def test_html_shows_what_a_reader_must_know_without_a_click(honest: Run) -> None:
    noisy = {"during": {"flags": [{"message": "Tasks waited for a CPU."}]}}
    page = html.to_html(honest.model_copy(update={"environment": noisy})).decode()
    open_part = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "Tasks waited for a CPU." in open_part
    assert all(one.sentence in open_part for one in honest.comparisons)


def test_html_needs_nothing_from_elsewhere(honest: Run) -> None:
    page = html.to_html(honest)
    tags = Tags(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(tags.tags)
    assert not {"src", "href", "action", "style"} & {name for name, _ in tags.attributes}
    assert not re.search(rb"url\(|@import|https?://", page)


def test_html_is_the_same_structure_whatever_the_texts_say(hostile: Run) -> None:
    page = Tags(html.to_html(hostile))
    tame = Tags(html.to_html(Run.model_validate_json(hostile.model_dump_json().replace(json.dumps(HOSTILE), '"x"'))))
    assert page.tags == tame.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in tame.attributes]
    assert "{{7*7}}" in page.text
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text


def test_the_chart_is_well_formed_and_names_every_verdict(honest: Run) -> None:
    text = html.to_html(honest).decode()
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    said = [item.text for item in svg.iter("text")]
    assert [verdict for verdict in Verdict if any(verdict in str(text) for text in said)] == list(Verdict)


numbers_of_any_kind = st.floats() | st.floats(0.5, 2) | st.none()


@settings(max_examples=40)
@given(ratio=numbers_of_any_kind, low=st.floats(), high=st.floats(), floor=numbers_of_any_kind)
def test_no_number_breaks_the_report(ratio: float | None, low: float, high: float, floor: float | None) -> None:
    row = comparison("t", 1.5, Verdict.FASTER).model_copy(
        update={"ratio": ratio, "interval": Interval(low=low, high=high), "noise_floor": floor}
    )
    html.to_html(run_of(row))


def test_csv_has_every_field_and_every_target(honest: Run) -> None:
    figures = rows(tables.to_csv(honest))
    assert [row["row"] for row in figures] == ["comparison"] * len(Verdict) + ["skipped", "failed"]
    first = figures[0]
    assert float(first["ratio"]) == honest.comparisons[0].ratio
    assert float(first["baseline.memory.host_peak_rss"]) == 300 << 20
    assert {name.partition(".")[0] for name in first} >= set(Comparison.model_fields)
    assert (figures[-2]["code"], figures[-1]["hint"]) == ("NO_GPU", "correct it")


def test_csv_cells_are_no_formulas(hostile: Run) -> None:
    for row in rows(tables.to_csv(hostile)):
        assert None not in row
        assert row["target"] == "'" + HOSTILE
        for value in row.values():
            assert not value.startswith(("=", "+", "@"))


def test_json_round_trips_and_has_no_nan() -> None:
    row = comparison("t", 1.5, Verdict.FASTER).model_copy(update={"p_value": math.nan})
    data = json.loads(tables.to_json(run_of(row)), parse_constant=lambda name: pytest.fail(name))
    assert data["run"]["comparisons"][0]["p_value"] is None
    assert Run.model_validate(data["run"]).comparisons[0].ratio == 1.5


def test_markdown_table_stays_a_table(honest: Run, hostile: Run) -> None:
    for run in (honest, hostile):
        text = markdown.to_markdown(run).decode()
        lines = text.splitlines()
        begin = next(n for n, line in enumerate(lines) if line.startswith("| --- "))
        table = lines[begin : begin + 1 + len(run.comparisons)]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {10}
    assert "<script" not in text.replace("\\<", "")
    assert "@all" not in text
    assert "http://" not in text


@pytest.mark.parametrize(
    ("say", "value", "text"),
    [
        (numbers.ratio, 1.0129, "1.013×"), (numbers.ratio, 2.744, "2.74×"), (numbers.ratio, 127.4, "127×"),
        (numbers.ratio, 20912.3, "20,900×"), (numbers.percent, 652.38, "65,238 %"),
        (numbers.ratio, None, "–"), (numbers.ratio, math.nan, "–"),
        (numbers.seconds, 8.243e-5, "82.43 µs"), (numbers.seconds, 1.2e-8, "12 ns"), (numbers.seconds, 3.0, "3 s"),
        (numbers.size, 300 << 20, "300.0 MiB"), (numbers.size, 12, "12 B"), (numbers.percent, 0.0123, "1.2 %"),
    ],
)  # fmt: skip
def test_numbers_read_well(say: object, value: object, text: str) -> None:
    assert callable(say)
    assert say(value) == text
