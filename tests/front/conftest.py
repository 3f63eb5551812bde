"""The server as a bare process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_support import Raw


@pytest.fixture
def raw(home: Path) -> Iterator[Raw]:
    server = Raw()
    yield server
    server.process.kill()
    for stream in (server.process.stdin, server.process.stdout, server.process.stderr):
        if stream is not None:
            stream.close()
    server.process.wait()
