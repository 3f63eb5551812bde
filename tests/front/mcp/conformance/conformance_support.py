"""Paths of Node and its packages, and the reason to skip a test without them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NODE = os.environ.get("AISP_NODE")
MODULES = Path(os.environ.get("AISP_NODE_MODULES", "/nowhere"))
HERE = Path(__file__).parent
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
VOCABULARY = MODULES / "js-tiktoken"


def needs_node(package: Path) -> pytest.MarkDecorator:
    """Skip, saying what is missing, where Node 22 or this package is not there."""
    absent = NODE is None or not package.exists()
    reason = (
        f"AISP_NODE (Node 22 or newer) and AISP_NODE_MODULES (with {package.name}) are not set: docs/conformance.md"
    )
    return pytest.mark.skipif(absent, reason=reason)


def node(*argv: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script with Node."""
    assert NODE is not None
    return subprocess.run([NODE, *map(str, argv)], capture_output=True, text=True, check=False, **options)


@contextmanager
def serving(kind: str) -> Iterator[str]:
    """The URL of a conformance_server.py of this kind, in a process of its own."""
    pipe = subprocess.PIPE
    argv = [sys.executable, str(HERE / "conformance_server.py"), kind]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            yield url
        finally:
            process.stdin.close()
            process.wait(timeout=20)


@dataclass(frozen=True)
class Report:
    """Result of the suite: its exit code, and each scenario's checks by status."""

    code: int
    checks: dict[str, list[dict[str, Any]]]

    def failed(self, scenario: str) -> list[str]:
        """Checks that did not pass, in words; nothing for a scenario all of whose checks passed."""
        bad = [c for c in self.checks[scenario] if c["status"] == "FAILURE"]
        return [f"{check['id']}: {check.get('errorMessage')}" for check in bad]


def run_suite(url: str, out: Path, *options: str) -> Report:
    """Run the official suite against a server."""
    done = node(SUITE, "server", "--url", url, *options, "-o", out, timeout=500)
    checks = {}
    for file in sorted(out.rglob("checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", file.parent.name).removeprefix("server-")
        checks[name] = json.loads(file.read_text("utf-8"))
    assert checks, done.stdout + done.stderr
    return Report(done.returncode, checks)
