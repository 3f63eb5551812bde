"""Questions of a running job, as files in its folder: its worker asks, and a front that can reach a person answers.

They are files because the worker and the server share nothing else while the job runs, and either may come and go.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.records import Record

# Set in a job's environment if a front that can ask a person watches it.
ASKABLE = "AISP_JOB_ASKABLE"
FOLDER, LOOK_S = "questions", 0.1


class Question(Record):
    """A form. fields: JSON Schemas of its entries by name, flat: text, numbers, booleans and choices."""

    message: str
    fields: dict[str, dict[str, Any]]
    required: list[str] = Field(default_factory=list)


class Reply(Record):
    """The person's reply to the form. content: their entries, if they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


def ask(run_dir: Path, questions: Mapping[str, Question], patience_s: float) -> dict[str, Reply] | None:
    """Put questions to the person and wait for all replies; None if they do not come in time.

    Each name can be used once per job. Raises ValueError for a name used before.
    """
    folder = run_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, question in questions.items():
        if not name.isidentifier() or _question(folder, name).exists():
            raise ValueError(f"{name!r} is not an identifier, or was already used for a question")
        _write(_question(folder, name), question.model_dump_json())
    deadline = time.monotonic() + patience_s
    while not all(_reply(folder, name).exists() for name in questions):
        if time.monotonic() >= deadline:
            return None
        time.sleep(LOOK_S)
    return {name: Reply.model_validate_json(_reply(folder, name).read_text("utf-8")) for name in questions}


def open_questions(run_dir: Path) -> dict[str, Question]:
    """The unanswered questions, by name."""
    folder = run_dir / FOLDER
    questions = {}
    for path in sorted(folder.glob("*.question")):
        if not _reply(folder, path.stem).exists():
            with contextlib.suppress(FileNotFoundError):
                questions[path.stem] = Question.model_validate_json(path.read_text("utf-8"))
    return questions


def reply(run_dir: Path, name: str, answer: Reply) -> bool:
    """Answer an open question. False if there is none of that name."""
    if name not in open_questions(run_dir):
        return False
    _write(_reply(run_dir / FOLDER, name), answer.model_dump_json())
    return True


def _question(folder: Path, name: str) -> Path:
    return folder / f"{name}.question"


def _reply(folder: Path, name: str) -> Path:
    return folder / f"{name}.reply"


def _write(path: Path, text: str) -> None:
    from aisp_mcp.store.files import write_atomic  # loads SQLite; the command line imports only the forms

    write_atomic(path, text)
