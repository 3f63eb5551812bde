"""Two commits of a server: started side by side, compared, and ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.gate import serving
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.runs.endpoint import judging, measuring
from aisp_mcp.runs.endpoint.records import SelfTest
from aisp_mcp.server.context import Context

SERVER = r"""
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from delays import TOKEN_S

class Answer(BaseHTTPRequestHandler):
    def log_message(self, *_): pass

    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not asked.get("stream"):
            return self.reply(json.dumps({"choices": [{"message": {"content": "a"}}]}).encode())
        self.send_response(200)
        self.end_headers()
        for _ in range(asked["max_tokens"]):
            time.sleep(TOKEN_S)
            chunk = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def reply(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def checkout(folder: Path, delay: str) -> Checkout:
    folder.mkdir()
    (folder / "serve.py").write_text(SERVER)
    (folder / "delays.py").write_text(f"TOKEN_S = {delay}\n")
    return Checkout(folder.name, folder)


def test_each_commit_serves_its_own_code_and_slower_tokens_regress(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tmp_path / "bin" / "guidellm"
    client.parent.mkdir()
    script = Path(__file__).parents[1] / "runs" / "endpoint" / "load_client.py"
    client.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{script}" "$@"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(client.parent), "/usr/bin", "/bin"]))
    known = SelfTest(client="guidellm", ttft_ms=[], tpot_ms=[], sentence="")  # other tests run it
    monkeypatch.setattr(measuring, "self_test", lambda _: known)
    both = [checkout(tmp_path / "base", "0.004"), checkout(tmp_path / "head", "0.02")]
    load = {"loads": ["2"], "requests": 5, "repeats": 3, "output_tokens": 6, "client": "guidellm"}
    row = serving.row(ctx, f"{sys.executable} serve.py {{port}}", both, tmp_path / "logs", load)
    assert row.outcome == "regressed", row.sentence
    assert row.ratio is not None
    assert row.ratio < 0.5


def test_a_server_that_ends_and_a_command_without_a_port_are_named(ctx: Context, tmp_path: Path) -> None:
    both = [checkout(tmp_path / "base", "0.001"), checkout(tmp_path / "head", "1 / 0")]
    with pytest.raises(AispError) as raised:
        serving.row(ctx, f"{sys.executable} serve.py {{port}}", both, tmp_path / "logs")
    assert raised.value.code == "SERVER_DIED"
    assert "The server of head ended: ZeroDivisionError" in raised.value.message
    with pytest.raises(AispError, match="names no"):
        serving.require_port("python serve.py")


def test_every_word_has_an_outcome() -> None:
    assert serving.OUTCOMES.keys() == set(judging.Word)
