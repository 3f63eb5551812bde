"""Strict arguments, refused in our own words."""

from __future__ import annotations

from typing import Any

import pytest

from aisp_mcp.envelope import Envelope, ErrorInfo
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context


def call(ctx: Context, tool: str, args: Any) -> Envelope:
    return dispatch.execute(tool, args, ctx)


def refusal(ctx: Context, args: Any) -> ErrorInfo:
    envelope = call(ctx, "aisp_demo_echo", args)
    assert envelope.error is not None
    return envelope.error


def test_values_arrive_as_they_were_sent(ctx: Context) -> None:
    args = {
        "count": 3, "names": ["a"], "ratio": 2, "loud": True, "mode": "fancy", "colour": "blue", "where": "/x",
        "either": ["y"],
    }  # fmt: skip
    envelope = call(ctx, "aisp_demo_echo", args)
    assert envelope.result == {"said": {**args, "ratio": 2.0}}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"count": "3"}, "'count' must be an integer, not the text \"3\"."),
        ({"count": 3.0}, "'count' must be an integer, not 3.0."),
        ({"count": True}, "'count' must be an integer, not true."),
        ({"count": 0}, "'count' must be at least 1, not 0."),
        ({"count": 10}, "'count' must be at most 9, not 10."),
        ({"count": None}, "'count' must be an integer, not null."),
        ({"count": 1, "loud": "yes"}, "'loud' must be true or false, not the text \"yes\"."),
        ({"count": 1, "loud": 1}, "'loud' must be true or false, not 1."),
        ({"count": 1, "names": "a"}, "'names' must be a list, not the text \"a\"."),
        ({"count": 1, "names": ["a", 2]}, "'names[1]' must be text, not 2."),
        ({"count": 1, "names": ["a"] * 4}, "'names' must be at most 3 items, not a list of 4."),
        ({"count": 1, "ratio": 0}, "'ratio' must be more than 0, not 0."),
        ({"count": 1, "mode": "loud"}, "'mode' must be one of 'plain' or 'fancy', not the text \"loud\"."),
        ({"count": 1, "colour": {}}, "'colour' must be one of 'red' or 'blue', not an object."),
        ({"count": 1, "either": "x"}, "'either' must be an integer or a list, not the text \"x\"."),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(ctx: Context, args: dict[str, Any], sentence: str) -> None:
    error = refusal(ctx, args)
    assert error.code == "INVALID_ARGUMENT"
    assert error.message == sentence
    assert error.hint is not None
    assert error.hint.startswith("Expected: count (required), names, ")


def test_a_missing_argument_is_named(ctx: Context) -> None:
    error = refusal(ctx, {})
    assert (error.code, error.message) == ("MISSING_ARGUMENT", "'count' is required.")


def test_an_unknown_argument_is_answered_with_the_call_that_was_meant(ctx: Context) -> None:
    error = refusal(ctx, {"cuont": 2})
    assert error.code == "UNKNOWN_ARGUMENT"
    assert error.hint is not None
    assert "Did you mean 'count'?" in error.hint
    [step] = error.next_steps
    assert call(ctx, step.tool, step.args).result["said"]["count"] == 2


def test_a_guess_that_would_not_work_is_not_offered(ctx: Context) -> None:
    assert refusal(ctx, {"cuont": "2"}).next_steps == []
    assert refusal(ctx, {"count": 1, "cuont": 2}).next_steps == []
    assert refusal(ctx, {"count": 1, "zzzz": 2}).next_steps == []


@pytest.mark.parametrize(
    "args",
    [
        [], "x", None, 3,
        {"count": float("nan")}, {"count": 1, "ratio": float("inf")},
        {"count": 1, "names": ["\ud800"]}, {"count": 10**5000}, {"count": object()},
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_without_a_traceback(ctx: Context, args: Any) -> None:
    error = refusal(ctx, args)
    assert error.code == "INVALID_ARGUMENT"
    assert len(error.message) < 300


def test_deep_nesting_is_refused(ctx: Context) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert refusal(ctx, {"count": 1, "names": deep}).code == "INVALID_ARGUMENT"


def test_the_callers_words_come_back_bounded_and_on_one_line(ctx: Context) -> None:
    long = "x\n\x1b[31m" * 10_000
    for args in ({"count": long}, {long: 1}, {f"{long}{i}": i for i in range(50)}):
        error = refusal(ctx, args)
        assert len(error.message) < 600
        assert "\x1b" not in error.message
        assert "\n" not in error.message


def test_no_word_of_the_checking_library_reaches_the_caller(ctx: Context) -> None:
    for args in ({"count": "3"}, {"count": 1, "mode": 5}, {"count": 1, "where": 5}, {"count": 1, "either": None}):
        text = dispatch.to_json(call(ctx, "aisp_demo_echo", args))
        assert "pydantic" not in text
        assert "http" not in text
        assert "Input should" not in text
