"""The server as a process: how it starts, what it writes, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import forks
import pytest
from front_support import INITIALIZE, Raw
from waiting import PATIENCE_S, until


def busy(raw: Raw, tmp_path: Path) -> None:
    """Start a tool that hears nothing for ten minutes, and return when it has begun."""
    raw.handshake()
    raw.call(1, "aisp_demo_hold", {"ready": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)


def test_end_of_input_ends_the_server_although_a_tool_is_busy(raw: Raw, tmp_path: Path) -> None:
    busy(raw, tmp_path)
    assert raw.process.stdin is not None
    raw.process.stdin.close()
    assert raw.process.wait(timeout=PATIENCE_S) == 0  # the tool would hold it for ten minutes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_server_although_a_tool_is_busy(raw: Raw, tmp_path: Path, number: int) -> None:
    busy(raw, tmp_path)
    raw.process.send_signal(number)
    assert raw.process.wait(timeout=PATIENCE_S) == 0


def test_a_busy_tool_keeps_nobody_waiting(raw: Raw, tmp_path: Path) -> None:
    busy(raw, tmp_path)
    for number in range(2, 12):
        raw.call(number, "aisp_demo_echo", {"count": 1})
        assert raw.read()["id"] == number


def test_answers_that_are_due_come_out_before_the_server_ends(home: Path) -> None:
    """`printf REQUESTS | aisp-mcp`: the input has ended before the first answer."""
    lines = [{"id": 0, **INITIALIZE}, {"method": "notifications/initialized"}]
    lines += [
        {"id": n, "method": "tools/call", "params": {"name": "aisp_demo_echo", "arguments": {"count": n}}}
        for n in range(1, 6)
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    argv = [sys.executable, "-m", "aisp_mcp", "--serve"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=50, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2, 3, 4, 5]
    assert done.returncode == 0


def test_standard_output_carries_the_protocol_alone(raw: Raw) -> None:
    raw.handshake()
    for number, tool in enumerate(["aisp_demo_print", "aisp_demo_boom", "aisp_demo_print"], 1):
        raw.call(number, tool, {})
        assert raw.read()["id"] == number
    out, err = raw.process.communicate(timeout=PATIENCE_S)
    assert out == ""
    for stray in ("stray words", "stray bytes", "stray child", "secret detail"):
        assert stray in err


@pytest.mark.parametrize(
    "line", ["not json", "[]", "3", '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","id":7,"method":"no/such"}', "\x00" * 100]
)
def test_nonsense_does_not_end_the_server(lasting: Raw, line: str) -> None:
    assert lasting.process.stdin is not None
    lasting.process.stdin.write(line + "\n")
    lasting.call(1, "aisp_demo_echo", {"count": 1})
    while (answer := lasting.read()).get("id") != 1:
        assert "error" in answer
    assert answer["result"]["isError"] is False


def test_a_folder_given_to_the_server_must_exist(home: Path) -> None:
    argv = [sys.executable, "-m", "aisp_mcp", "--bench-root", "/no/such/folder"]
    done = forks.run(argv, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "NO_SUCH_FOLDER" in done.stderr
    assert done.stdout == ""


def test_a_broken_tool_module_stops_the_server_with_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_TOOL_MODULES", "no_such_module_here")
    argv = [sys.executable, "-m", "aisp_mcp"]
    done = forks.run(argv, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "no_such_module_here" in done.stderr
    assert "Traceback" not in done.stderr
