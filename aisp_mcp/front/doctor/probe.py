"""Start a server as a client would, and check that it answers."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

from aisp_mcp.errors import ProcessError
from aisp_mcp.process.run import Completed, run

TIMEOUT_S = 30.0
_MESSAGES = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "aisp doctor", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)


@dataclass(frozen=True)
class Probe:
    """Result of the probe. message: a sentence. seconds: from start to end. tools: number of listed tools."""

    ok: bool
    message: str
    seconds: float = 0.0
    tools: int = 0


def probe(entry: dict[str, Any]) -> Probe:
    """Run the command of an entry with a temporary store, so that the user's jobs are not touched."""
    if "url" in entry:
        return Probe(True, f"over HTTP at {str(entry['url'])[:200]}, not tried")
    command, args = str(entry.get("command", "")), entry.get("args") or []
    if shutil.which(command) is None:
        return Probe(False, f"{command} is not an executable program" if command else "the entry has no command")
    env = {**os.environ, **{str(key): str(value) for key, value in (entry.get("env") or {}).items()}}
    text = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in _MESSAGES)
    with tempfile.TemporaryDirectory(prefix="aisp-doctor-") as home:
        try:
            completed = run([command, *map(str, args)], timeout_s=TIMEOUT_S, env={**env, "AISP_HOME": home}, stdin=text)
        except ProcessError as error:
            return Probe(False, error.message)
    return _evaluate(completed)


def _evaluate(completed: Completed) -> Probe:
    answers = {}
    for line in completed.stdout.splitlines():
        try:
            answer = json.loads(line)
            answers[answer.get("id")] = answer.get("result") or {}
        except (ValueError, AttributeError):
            return Probe(False, f"it writes non-protocol text to standard output: {line[:80]!r}")
    if completed.timed_out:
        return Probe(False, f"it did not exit within {TIMEOUT_S:g} s after the end of its input")
    if "tools" not in answers.get(2, {}):
        last = (completed.stderr.strip().splitlines() or [f"it ended with {completed.returncode}"])[-1]
        return Probe(False, f"it does not answer: {last[:200]}")
    name = answers[1].get("serverInfo", {}).get("name")
    tools = len(answers[2]["tools"])
    return Probe(True, f"{name} answers, {tools} tools listed", round(completed.seconds, 2), tools)
