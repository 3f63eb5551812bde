"""A tool that holds the interpreter runs in a process of its own: nobody waits for it, and nothing of it is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from front_support import Raw
from waiting import PATIENCE_S, until

from aisp_mcp.process import tree


@pytest.fixture
def held(raw: Raw, tmp_path: Path) -> int:
    """The pid of a process that holds its interpreter's lock, on behalf of call 1, until somebody opens the pipe."""
    os.mkfifo(tmp_path / "pipe")
    raw.handshake()
    raw.call(1, "aisp_demo_parse", {"pid_file": str(tmp_path / "pid"), "pipe": str(tmp_path / "pipe")})
    until((tmp_path / "pid").exists)
    return int((tmp_path / "pid").read_text())


def test_other_calls_are_answered_meanwhile_and_its_own_at_last(raw: Raw, held: int, tmp_path: Path) -> None:
    assert held != raw.process.pid
    for number in range(2, 6):
        raw.call(number, "aisp_demo_echo", {"count": 1})
        assert raw.read()["id"] == number
    (tmp_path / "pipe").write_text("")
    answer = raw.read()  # and not a word that the tool printed
    assert answer["id"] == 1
    assert answer["result"]["structuredContent"]["result"] == {"said": {"principal": "local"}}


@pytest.mark.parametrize("end", ["input", signal.SIGTERM, signal.SIGKILL])
def test_its_process_ends_with_the_server(raw: Raw, held: int, end: str | signal.Signals) -> None:
    started = tree.start_time(held)
    helper = tree.children(raw.process.pid)
    assert helper
    if isinstance(end, signal.Signals):
        raw.process.send_signal(end)
    else:
        assert raw.process.stdin is not None
        raw.process.stdin.close()
    raw.process.wait(timeout=PATIENCE_S)
    until(lambda: not tree.alive(held, started))


def test_its_end_without_an_answer_is_an_answer(raw: Raw, tmp_path: Path) -> None:
    raw.handshake()
    raw.call(1, "aisp_demo_parse", {"pid_file": str(tmp_path / "pid"), "end": True})
    error = raw.read()["result"]["structuredContent"]["error"]
    assert error["code"] == "CRASHED"
    raw.call(2, "aisp_demo_parse", {"pid_file": str(tmp_path / "pid")})
    assert raw.read()["result"]["structuredContent"]["status"] == "ok"


def test_wrong_arguments_are_answered_without_a_process(raw: Raw) -> None:
    raw.handshake()
    raw.call(1, "aisp_demo_parse", {"pid_file": 5})
    assert raw.read()["result"]["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"
    assert tree.children(raw.process.pid) == []
