"""Questions of a job, as files both sides may come and go around."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from aisp_mcp.jobs import questions
from aisp_mcp.jobs.questions import Question, Reply

QUESTION = {"one": Question(message="One?", fields={"value": {"type": "string"}})}
YES = Reply(action="accept", content={"value": "yes"})


def test_a_reply_reaches_who_asked(tmp_path: Path) -> None:
    got: list[dict[str, Reply] | None] = []
    asker = threading.Thread(target=lambda: got.append(questions.ask(tmp_path, QUESTION, PATIENCE_S)))
    asker.start()
    until(lambda: questions.open_questions(tmp_path))
    assert questions.reply(tmp_path, "two", YES) is False
    assert questions.reply(tmp_path, "one", YES) is True
    asker.join(PATIENCE_S)
    assert got == [{"one": YES}]
    assert questions.open_questions(tmp_path) == {}
    assert questions.reply(tmp_path, "one", YES) is False


def test_nobody_answers(tmp_path: Path) -> None:
    assert questions.ask(tmp_path, QUESTION, 0) is None


@pytest.mark.parametrize("name", ["one", "../one", "", "a b"])
def test_a_name_is_used_once_and_is_no_path(tmp_path: Path, name: str) -> None:
    questions.ask(tmp_path, QUESTION, 0)
    with pytest.raises(ValueError, match="already used"):
        questions.ask(tmp_path, {name: QUESTION["one"]}, 0)


def test_a_job_without_questions_has_none(tmp_path: Path) -> None:
    assert questions.open_questions(tmp_path) == {}
    assert questions.reply(tmp_path, "../../etc/passwd", YES) is False
