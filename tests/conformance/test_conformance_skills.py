"""The Skills extension before the official conformance suite, over the HTTP transport of the protocol library."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.context import Context
from aisp_mcp.settings import Settings

NODE, MODULES = os.environ.get("AISP_NODE"), os.environ.get("AISP_NODE_MODULES")
SUITE = Path(MODULES or "/nowhere") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        NODE is None or not SUITE.is_file(),
        reason="AISP_NODE (Node 22 or newer) and AISP_NODE_MODULES (with the conformance suite) are not set",
    ),
]


@pytest.fixture
def url(home: Path, demo_tools: None) -> Iterator[str]:
    """The real server on a port of its own."""
    import uvicorn

    from aisp_mcp.front.mcp_server import Handlers, build_server

    app = build_server(Handlers(Context(settings=Settings.from_env()))).streamable_http_app()
    listener = socket.create_server(("127.0.0.1", 0))  # who connects early waits in its queue
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(url: str, tmp_path: Path, scenario: str) -> None:
    argv = [str(NODE), str(SUITE), "server", "--url", url, "--scenario", scenario, "--force", "-o", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    checks: list[dict[str, Any]] = [
        check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text("utf-8"))
    ]
    assert len(checks) > 4, done.stdout + done.stderr
    bad = [(check["id"], check.get("errorMessage")) for check in checks if check["status"] not in ("SUCCESS", "INFO")]
    assert bad == []
