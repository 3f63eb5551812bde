"""The server as a process: over pipes without a client library, and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_support import Raw
from http_support import Served


@pytest.fixture
def raw(home: Path) -> Iterator[Raw]:
    server = Raw()
    yield server
    server.process.kill()
    for stream in (server.process.stdin, server.process.stdout, server.process.stderr):
        if stream is not None:
            stream.close()
    server.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that leave it as it was."""
    env = {"AISP_HOME": str(tmp_path_factory.mktemp("shared")), "AISP_TOOL_MODULES": "front_tools"}
    server = Served(env={**env, "PYTHONPATH": str(Path(__file__).parent)})
    yield server
    server.stop()


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """A server of one test's own."""
    server = Served()
    yield server
    server.stop()
