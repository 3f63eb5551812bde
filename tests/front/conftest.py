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
    server.end()


@pytest.fixture(scope="module")
def shared_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a server that several tests of a file use."""
    home = str(tmp_path_factory.mktemp("shared"))
    return {"AISP_HOME": home, "AISP_TOOL_MODULES": "front_tools", "PYTHONPATH": str(Path(__file__).parent)}


@pytest.fixture(scope="module")
def shared(shared_env: dict[str, str]) -> Iterator[Served]:
    """One server for all tests that leave it as it was."""
    server = Served(env=shared_env)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def _lasting(shared_env: dict[str, str]) -> Iterator[list[Raw]]:
    servers: list[Raw] = []
    yield servers
    for server in servers:
        server.end()


@pytest.fixture
def lasting(_lasting: list[Raw], shared_env: dict[str, str]) -> Raw:
    """The server of a file over pipes, after the handshake; a new one where a test has ended the last."""
    if not _lasting or _lasting[-1].process.poll() is not None:
        _lasting.append(Raw(env=shared_env))
        _lasting[-1].handshake()
    _lasting[-1].settle(1_000_000)
    return _lasting[-1]


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """A server of one test's own."""
    server = Served()
    yield server
    server.stop()
