"""No answer over the limit, nothing left out in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aisp_mcp.envelope import Envelope, ErrorInfo, Meta, NextStep, Status
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.shorten import ANSWERS_KEPT, CEILING, FLOOR
from aisp_mcp.settings import Settings

META = Meta(duration_ms=1.0, version="0", at="2026-01-01T00:00:00.000Z")


def limits(home: Path, characters: int = 8000, items: int = 50) -> Settings:
    env = {
        "AISP_HOME": str(home),
        "AISP_MCP_PREVIEW_LIMIT": str(characters),
        "AISP_MCP_PREVIEW_ITEMS": str(items),
    }
    return Settings.from_env(env)


def answer(result: Any) -> Envelope:
    return Envelope(tool="aisp_x", status=Status.OK, result=result, meta=META)


def kept(envelope: Envelope, home: Path) -> dict[str, Any]:
    """The full answer, read from the file that how_to_get names."""
    assert envelope.truncated is not None
    path = Path(envelope.truncated.how_to_get.partition(" is the file ")[2].partition(", over MCP ")[0])
    assert path.is_relative_to(home)
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def test_a_short_answer_is_left_alone(tmp_path: Path) -> None:
    envelope = answer({"a": [1, 2, 3]})
    assert dispatch.shorten(envelope, limits(tmp_path)) is envelope
    assert not (tmp_path / "answers").exists()


def test_a_long_list_is_cut_even_when_it_would_fit(tmp_path: Path) -> None:
    envelope = dispatch.shorten(answer({"a": list(range(60))}), limits(tmp_path))
    assert envelope.result == {"a": list(range(50))}
    assert envelope.truncated is not None
    assert envelope.truncated.what == ["result.a: 50 of 60 items"]
    assert kept(envelope, tmp_path)["result"] == {"a": list(range(60))}


def test_a_store_that_a_long_answer_creates_is_private(tmp_path: Path) -> None:
    """The first command of a new user may be a list, and jobs refuse a folder that others can read."""
    home = tmp_path / "data" / "aisp"
    dispatch.shorten(answer({"a": list(range(60))}), limits(home))
    assert [path.stat().st_mode & 0o777 for path in (home, home / "answers")] == [0o700, 0o700]


def test_texts_are_cut_before_items_and_keep_their_end(tmp_path: Path) -> None:
    log = "begin " + "x" * 30_000 + " the end"
    envelope = dispatch.shorten(answer({"log": log, "rows": list(range(40))}), limits(tmp_path))
    assert envelope.result["rows"] == list(range(40))
    assert envelope.result["log"].startswith("begin ")
    assert envelope.result["log"].endswith(" the end")


def test_inner_lists_are_cut_before_outer_ones(tmp_path: Path) -> None:
    rows = [{"name": f"row {i}", "samples": list(range(1000, 1050))} for i in range(40)]
    envelope = dispatch.shorten(answer({"rows": rows}), limits(tmp_path))
    assert len(envelope.result["rows"]) == 40
    assert envelope.truncated is not None
    assert envelope.truncated.what == ["result.rows[*].samples: 20 of 50 items (and 39 like it)"]


def test_rows_stay_when_their_particulars_must_go(tmp_path: Path) -> None:
    figures = {f"figure_{i}": 0.123456789 for i in range(40)}
    rows = [{"name": f"row {i}", "interval": {"low": 1.0, "high": 2.0}, "baseline": figures} for i in range(30)]
    envelope = dispatch.shorten(answer({"rows": rows}), limits(tmp_path))
    assert len(envelope.result["rows"]) == 30
    assert envelope.result["rows"][29] == {"name": "row 29", "interval": {"low": 1.0, "high": 2.0}, "baseline": None}
    assert envelope.truncated is not None
    assert envelope.truncated.what == ["result.rows[*].baseline: left out (and 29 like it)"]


def test_the_sentence_of_an_answer_stays_whole_when_its_rows_get_compact(tmp_path: Path) -> None:
    sentence = "better for latency: " + "latency 3.02x at concurrency 2, " * 12
    rows = [{"name": f"row {i}", "sentence": "faster " * 40, "parts": ["x" * 200] * 9} for i in range(30)]
    envelope = dispatch.shorten(answer({"sentence": sentence, "rows": rows}), limits(tmp_path, characters=4000))
    assert envelope.result["sentence"] == sentence
    assert len(envelope.result["rows"][0]["sentence"]) < len("faster " * 40)


def test_as_many_items_stay_as_fit(tmp_path: Path) -> None:
    rows = [{"name": "n" * 100, "more": "m" * 100} for _ in range(1000)]
    envelope = dispatch.shorten(answer(rows), limits(tmp_path, items=1000))
    text = dispatch.to_json(envelope)
    assert 7000 < len(text) <= 8000


def test_an_error_never_loses_its_code_nor_its_steps_in_silence(tmp_path: Path) -> None:
    steps = [NextStep(tool="aisp_x", args={"text": "y" * size}) for size in (10, 20_000)]
    error = ErrorInfo(code="BAD", message="m" * 50_000, hint="h" * 50_000, next_steps=steps, kind="UsageError")
    envelope = dispatch.shorten(Envelope(tool="aisp_x", status=Status.ERROR, error=error, meta=META), limits(tmp_path))
    assert len(dispatch.to_json(envelope)) <= 8000
    assert envelope.error is not None
    assert (envelope.error.code, envelope.error.kind) == ("BAD", "UsageError")
    assert envelope.error.next_steps == steps[:1]
    assert envelope.truncated is not None
    assert "error.next_steps: 1 of 2 items" in envelope.truncated.what


def test_a_folder_that_cannot_be_written_is_said_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("in the way")
    envelope = dispatch.shorten(answer("x" * 100_000), limits(tmp_path))
    assert envelope.truncated is not None
    assert "could not be stored" in envelope.truncated.how_to_get


def test_kept_answers_are_bounded_and_equal_ones_are_one_file(tmp_path: Path) -> None:
    for number in range(ANSWERS_KEPT + 5):
        dispatch.shorten(answer({"n": number, "a": list(range(60))}), limits(tmp_path))
        dispatch.shorten(answer({"n": number, "a": list(range(60))}), limits(tmp_path))
    files = list((tmp_path / "answers").iterdir())
    assert len(files) == ANSWERS_KEPT
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize(("limit", "given"), [(1, FLOOR), (100_000_000, CEILING)])
def test_the_limit_itself_has_limits(tmp_path: Path, limit: int, given: int) -> None:
    envelope = dispatch.shorten(answer(["x" * 1000] * 1000), limits(tmp_path, limit, items=1000))
    assert given / 2 < len(dispatch.to_json(envelope)) <= given


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3000),
    lambda inner: st.lists(inner, max_size=200) | st.dictionaries(st.text(max_size=300), inner, max_size=80),
    max_leaves=60,
)


@given(
    result=json_values,
    repeat=st.integers(1, 100),
    limit=st.integers(1, 40_000),
    items=st.integers(1, 200),
    message=st.text(max_size=3000),
    paths=st.lists(st.text(max_size=300), max_size=20),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_answer_is_over_the_limit(
    tmp_path: Path, result: Any, repeat: int, limit: int, items: int, message: str, paths: list[str]
) -> None:
    error = ErrorInfo(code="BAD", message=message, hint=message, next_steps=[NextStep(tool="t", args={"a": message})])
    envelope = Envelope(
        tool="aisp_x", status=Status.ERROR, result=[result] * repeat, error=error, nonfinite=paths or None, meta=META
    )
    shorter = dispatch.shorten(envelope, limits(tmp_path, limit, items))
    text = dispatch.to_json(shorter)
    assert len(text) <= min(max(limit, FLOOR), CEILING)
    assert json.loads(text)["error"]["code"] == "BAD"
    if json.loads(text) != json.loads(dispatch.to_json(envelope)):
        assert shorter.truncated is not None
        assert shorter.truncated.what


def test_the_limit_holds_for_a_tool_that_says_too_much(ctx: Context) -> None:
    envelope = dispatch.execute("aisp_demo_big", {"items": 5000, "text": 2000}, ctx)
    shorter = dispatch.shorten(envelope, ctx.settings)
    assert len(dispatch.to_json(shorter)) <= ctx.settings.preview_limit
    assert kept(shorter, ctx.settings.home)["result"]["rows"][4999]["name"] == "row 4999"
