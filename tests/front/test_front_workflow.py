"""The whole workflow as a client walks it, in both protocol eras, against the real server as a process."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from front_support import ERAS
from mcp import Client, StdioServerParameters

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


@pytest.mark.parametrize("era", ERAS)
async def test_from_triage_to_the_report(home: Path, era: str) -> None:
    env = {**os.environ, "AISP_TOOL_MODULES": ""}
    server = StdioServerParameters(command=sys.executable, args=["-m", "aisp_mcp"], env=env)

    async with Client(server, mode=era, read_timeout_seconds=60) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(tool, arguments)
            assert answer.is_error is False, answer.structured_content
            return answer.structured_content

        listed = {tool.name for tool in (await client.list_tools()).tools}
        triage = (await call("aisp_triage"))["result"]
        assert triage["summary"]
        targets = (await call("aisp_benchmark_targets"))["result"]["targets"]
        [chosen] = [one["name"] for one in targets if one["name"] == "ch07:row_sum"]
        ticket = await call("aisp_run_benchmarks", targets=[chosen], preset="quick", wait_s=0)
        assert ticket["status"] in ("queued", "running")
        job = ticket["job"]["job_id"]
        for _ in range(6):
            waited = (await call("aisp_job_wait", job_ids=[job], timeout_s=45))["result"]
            if waited.get("answer"):
                break
        run = waited["answer"]["result"]
        assert {one["target"] for one in run["rulings"]} >= {"ch07:row_sum_tiled"}
        report = (await call("aisp_benchmark_report", run_id=run["run_id"], format="html"))["result"]
        assert Path(report["files"][0]["path"]).read_text("utf-8").startswith("<!doctype html>")
        listing = (await call("aisp_job_list"))["result"]["jobs"]
        assert [line["job_id"] for line in listing] == [job]
        used = {"aisp_triage", "aisp_benchmark_targets", "aisp_run_benchmarks", "aisp_job_wait", "aisp_benchmark_report"}
        assert used <= listed
