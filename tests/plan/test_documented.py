"""The commands of the planners' page, typed as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "planners.md").read_text("utf-8")
COMMANDS = dict.fromkeys(first or second for first, second in re.findall(r"`(aisp [^`]+)`|^\$ (aisp .*)$", PAGE, re.M))
# They name a run of the reader's own, train for seconds (their own tests call them), or have a place to fill in.
ELSEWHERE = ("plan calibrate", "distributed measure", "bench utils --tool kv-cache -- FLAGS")
TYPED = [text for text in COMMANDS if " --" in text and not text.removeprefix("aisp ").startswith(ELSEWHERE)]


@pytest.mark.parametrize("text", TYPED)
def test_a_documented_command_answers(cli_here: Any, text: str) -> None:
    words = shlex.split(text.partition(" #")[0])[1:]
    at = words.index("--") if "--" in words else len(words)
    done = cli_here(*words[:at], "--json", *words[at:])
    answer = json.loads(done.stdout)
    needs_runs = answer["status"] == "error" and answer["error"]["code"] == "NO_RUNS"
    assert done.returncode == 0 or needs_runs, done.stdout + done.stderr


def test_the_page_has_commands() -> None:
    assert len(TYPED) >= 18
