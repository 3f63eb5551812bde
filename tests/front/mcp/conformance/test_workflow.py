"""The official TypeScript client works its way from triage to the report, over both transports, in both eras."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conformance_support import HERE, MODULES, needs_node, node
from http_support import Served

from aisp_mcp.judge.records.verdict import Verdict

CLIENT = MODULES / "@modelcontextprotocol" / "client"
VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}

pytestmark = [pytest.mark.conformance, pytest.mark.torch, needs_node(CLIENT)]


@pytest.mark.parametrize("era", VERSIONS)
@pytest.mark.parametrize("over", ["stdio", "http"])
def test_from_triage_to_the_report(home: Path, monkeypatch: pytest.MonkeyPatch, era: str, over: str) -> None:
    monkeypatch.delenv("AISP_TOOL_MODULES")
    if over == "stdio":
        done = node(HERE / "workflow.mjs", MODULES, era, "stdio", sys.executable, "-m", "aisp_mcp", timeout=55)
    else:
        server = Served()
        try:
            monkeypatch.setenv("WORKFLOW_TOKEN", server.token)
            done = node(HERE / "workflow.mjs", MODULES, era, server.url, timeout=55)
        finally:
            server.stop()
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert saw["version"] == VERSIONS[era]
    assert "aisp_triage" in saw["tools"]
    assert saw["triage"]
    assert saw["waits"] >= 1
    [row] = saw["verdicts"]
    assert row["target"] == saw["variant"]
    assert row["verdict"] in list(Verdict)
    assert saw["page"] == Path(saw["report"]).read_text("utf-8")
    assert "aisp_verify_candidate" in saw["prompt"]
    assert "ch07:row_sum" in saw["completed"]
