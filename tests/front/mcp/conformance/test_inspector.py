"""The official Inspector, as a command line, finds nothing to say about the catalogue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conformance_support import INSPECTOR, needs_node, node

pytestmark = [pytest.mark.conformance, needs_node(INSPECTOR)]


@pytest.mark.parametrize("options", [("--toolsets", "all"), (), ("--lite",)])
def test_the_strict_check_is_clean(home: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    monkeypatch.delenv("AISP_TOOL_MODULES")
    monkeypatch.setenv("HOME", str(home))
    home.mkdir()
    script = home / "server"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aisp_mcp {" ".join(options)}\n')
    script.chmod(0o700)
    done = node(INSPECTOR, "--cli", script, "--method", "tools/list", "--strict", timeout=55)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert '"aisp_triage"' in output
    assert "warning" not in output.lower()
