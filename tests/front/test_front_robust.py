"""A client that does everything wrong, and one that goes away: the server answers, lives on, and ends when it must."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from front_support import INITIALIZE, Raw
from waiting import PATIENCE_S, until

ECHO = {"name": "aisp_demo_echo", "arguments": {"count": 1}}


def lives(raw: Raw, number: int = 99) -> None:
    """The server still answers."""
    raw.call(number, "aisp_demo_echo", {"count": 1})
    answer = raw.read()
    assert (answer["id"], answer["result"]["isError"]) == (number, False)


def write(raw: Raw, line: str) -> None:
    assert raw.process.stdin is not None
    raw.process.stdin.write(line + "\n")
    raw.process.stdin.flush()


DEEP = '{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":' + "[" * 100_000 + "]" * 100_000 + "}}"
MALFORMED: list[tuple[str, Any, int]] = [
    ("not json", None, -32700),
    ('{"jsonrpc":"2.0","id":1', None, -32700),
    ("\x00" * 100, None, -32700),
    ("{}", None, -32600),
    ("[]", None, -32600),
    ('[{"jsonrpc":"2.0","id":5,"method":"ping"}]', None, -32600),
    ("3", None, -32600),
    ("null", None, -32600),
    ('"text"', None, -32600),
    ('{"jsonrpc":"1.0","id":5,"method":"ping"}', 5, -32600),
    ('{"id":5,"method":"ping"}', 5, -32600),
    ('{"jsonrpc":"2.0","id":5}', 5, -32600),
    ('{"jsonrpc":"2.0","id":"five","method":"ping","params":[1]}', "five", -32600),
    ('{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"\\ud800"}}', 5, -32700),
    (DEEP, None, -32700),
]


@pytest.mark.parametrize(("line", "number", "code"), MALFORMED)
def test_what_is_no_message_is_refused_in_our_words(lasting: Raw, line: str, number: Any, code: int) -> None:
    write(lasting, line)
    answer = lasting.read()
    assert (answer["id"], answer["error"]["code"]) == (number, code)
    assert answer["error"]["data"]["code"] == "MALFORMED"
    lives(lasting)


@pytest.mark.parametrize("line", ["", "   ", '{"jsonrpc":"2.0","method":"no/such","params":[]}'])
def test_what_needs_no_answer_gets_none(lasting: Raw, line: str) -> None:
    write(lasting, line)
    lives(lasting)


WRONG: list[dict[str, Any]] = [
    {"method": "no/such"},
    {"method": ""},
    {"method": "tools/call"},
    {"method": "tools/call", "params": {}},
    {"method": "tools/call", "params": {"name": 3}},
    {"method": "tools/call", "params": {"name": None, "arguments": {}}},
    {"method": "tools/call", "params": {"name": "aisp_demo_echo", "arguments": [1]}},
    {"method": "tools/call", "params": {"name": "aisp_demo_echo", "arguments": "count"}},
    {"method": "tools/call", "params": {**ECHO, "_meta": 3}},
    {"method": "tools/list", "params": {"cursor": 5}},
    {"method": "tools/list", "params": {"cursor": "x"}},
    {"method": "resources/read", "params": {"uri": 5}},
    {"method": "resources/read", "params": {"uri": "aisp://../../etc/passwd"}},
    {"method": "prompts/get", "params": {"name": "no such prompt"}},
    {"method": "completion/complete", "params": {"ref": {"type": "ref/none"}, "argument": {}}},
    {"method": "initialize", "params": {"protocolVersion": 3}},
    {"method": "server/discover", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}}},
    {"method": "tasks/get", "params": {}},
]


@pytest.mark.parametrize("message", WRONG, ids=lambda value: json.dumps(value)[:60])
def test_a_wrong_request_is_an_error_and_nothing_more(lasting: Raw, message: dict[str, Any]) -> None:
    lasting.send(id=7, **message)
    answer = lasting.read()
    assert answer["id"] == 7
    assert answer["error"]["code"] in (-32002, -32600, -32601, -32602, -32022)
    assert "Traceback" not in json.dumps(answer)
    assert "pydantic" not in json.dumps(answer)
    lives(lasting)


@pytest.mark.parametrize("arguments", [{"count": 1, "names": ["x" * 10_000_000]}, {"y" * 10_000_000: 1}])
def test_a_huge_message_is_answered_briefly(lasting: Raw, arguments: dict[str, Any]) -> None:
    lasting.call(1, "aisp_demo_echo", arguments)
    answer = lasting.read()
    assert answer["id"] == 1
    assert len(json.dumps(answer["result"])) < 20_000
    lives(lasting)


def test_the_same_id_twice_is_two_answers(lasting: Raw) -> None:
    for _ in range(2):
        lasting.call(1, "aisp_demo_echo", {"count": 1})
    assert [lasting.read()["id"] for _ in range(2)] == [1, 1]
    lives(lasting)


def test_cancelling_what_is_not_there_does_nothing(lasting: Raw) -> None:
    for number in (1, "x", None, {}):
        lasting.send(method="notifications/cancelled", params={"requestId": number, "reason": "why not"})
    lives(lasting)


def test_a_cancelled_call_is_let_go_and_gets_no_result(raw: Raw, tmp_path: Path) -> None:
    raw.handshake()
    raw.call(1, "aisp_demo_hold", {"ready": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)
    raw.send(method="notifications/cancelled", params={"requestId": 1})
    for number in range(2, 6):
        raw.call(number, "aisp_demo_echo", {"count": 1})
    answers = {}
    while len(answers) < 4:
        answer = raw.read()
        assert "result" not in answer or answer["id"] != 1
        if answer["id"] != 1:
            answers[answer["id"]] = answer
    assert set(answers) == {2, 3, 4, 5}


def test_a_client_that_reads_late_gets_every_answer(raw: Raw) -> None:
    raw.handshake()
    count = 50  # a megabyte: many times what a pipe holds
    for number in range(1, count + 1):
        raw.send(id=number, method="tools/list")
    assert sorted(raw.read()["id"] for _ in range(count)) == list(range(1, count + 1))
    lives(raw)


def test_busy_tools_in_numbers_keep_nobody_waiting(raw: Raw, tmp_path: Path) -> None:
    raw.handshake()
    for number in range(20):
        raw.call(number + 1000, "aisp_demo_hold", {"ready": str(tmp_path / f"begun{number}")})
        until((tmp_path / f"begun{number}").exists)
    for number in range(1, 20):
        lives(raw, number)


@pytest.mark.timeout(150)  # two servers, a job and its supervisor start, one after the other
@pytest.mark.parametrize("how", ["end of input", "signal"])
def test_a_tool_s_programs_end_with_the_server_and_jobs_do_not(raw: Raw, tmp_path: Path, how: str) -> None:
    raw.handshake()
    os.mkfifo(tmp_path / "gate")
    raw.call(1, "aisp_demo_count", {"gate": str(tmp_path / "gate"), "wait_s": 0})
    job = raw.read()["result"]["structuredContent"]["job"]["job_id"]
    raw.call(2, "aisp_demo_program", {"pid_file": str(tmp_path / "pid")})
    until((tmp_path / "pid").exists)
    helper = psutil.Process(int((tmp_path / "pid").read_text()))
    if how == "signal":
        raw.process.send_signal(signal.SIGTERM)
    else:
        assert raw.process.stdin is not None
        raw.process.stdin.close()
    raw.process.wait(timeout=PATIENCE_S)
    assert raw.process.returncode == 0
    _, alive = psutil.wait_procs([helper], timeout=PATIENCE_S)
    assert alive == []
    after = Raw()
    try:
        after.handshake()
        after.call(1, "aisp_job_status", {"job_id": job})
        assert after.read()["result"]["structuredContent"]["result"]["job"]["state"] in ("queued", "running")
        with (tmp_path / "gate").open("wb", buffering=0) as gate:
            gate.write(b"xxx")
            after.call(2, "aisp_job_wait", {"job_ids": [job], "timeout_s": PATIENCE_S})
            done = after.read()["result"]["structuredContent"]["result"]["jobs"][0]
        assert done["state"] == "succeeded"
    finally:
        after.process.kill()
        after.process.communicate()


def test_the_server_ends_with_its_client_although_its_pipes_stay_open(home: Path, tmp_path: Path) -> None:
    """The client dies; another process still holds the writing end, so the input never ends."""
    os.mkfifo(tmp_path / "in")
    hold = os.open(tmp_path / "in", os.O_RDWR)
    client = (
        "import subprocess, sys, time\n"
        f"server = subprocess.Popen([sys.executable, '-m', 'aisp_mcp'], stdin=open({str(tmp_path / 'in')!r}),"
        " stdout=subprocess.PIPE)\n"
        f"open({str(tmp_path / 'in')!r}, 'w').write({json.dumps(json.dumps({'jsonrpc': '2.0', 'id': 0, **INITIALIZE}))}"
        " + chr(10))\n"
        "server.stdout.readline()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", client], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline()))
        process.kill()
    _, alive = psutil.wait_procs([server], timeout=PATIENCE_S)
    os.close(hold)
    assert alive == []
