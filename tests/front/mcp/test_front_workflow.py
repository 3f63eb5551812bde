"""The whole workflow as the official Python client walks it, in both protocol eras, over both transports."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from front_support import ERAS, Connect
from http_support import Served
from mcp import Client

from aisp_mcp.judge.records.verdict import Verdict

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
WORKFLOW = ("aisp_triage", "aisp_benchmark_targets", "aisp_run_benchmarks", "aisp_job_wait", "aisp_benchmark_export")


@asynccontextmanager
async def over_http(era: str) -> AsyncIterator[Client]:
    server = Served()
    try:
        async with server.client(era) as client:
            yield client
    finally:
        server.stop()


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert result.is_error is False, result.content
    envelope: dict[str, Any] = result.structured_content
    return envelope


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_from_triage_to_the_report(connect: Connect, era: str, over: str) -> None:
    connection: AbstractAsyncContextManager[Client] = over_http(era) if over == "http" else connect(era, "stdio")
    async with connection as client:
        assert set(WORKFLOW) <= {tool.name for tool in (await client.list_tools()).tools}
        assert (await call(client, "aisp_triage"))["result"]["summary"]
        targets = await call(client, "aisp_benchmark_targets", filter="ch07:row_sum")
        variant = targets["result"]["targets"][0]["variants"][-1]
        answer = await call(client, "aisp_run_benchmarks", targets=[variant], preset="quick", wait_s=0)
        while answer["status"] in ("queued", "running"):
            job_id = answer["job"]["job_id"]
            waited = (await call(client, "aisp_job_wait", job_ids=[job_id], timeout_s=45))["result"]
            answer = waited.get("answer") or {"status": waited["jobs"][0]["state"], "job": {"job_id": job_id}}
        [row] = answer["result"]["rulings"]
        assert row["target"] == variant
        assert row["verdict"] in list(Verdict)
        run_id = answer["result"]["run_id"]
        report = await call(client, "aisp_benchmark_export", run_id=run_id, format="html")
        [content] = (await client.read_resource(f"aisp://jobs/{run_id}/artifacts/report.html")).contents
        assert content.mime_type == "text/html"
        assert content.text == Path(report["result"]["files"][0]["path"]).read_text("utf-8")
        [content] = (await client.read_resource(f"aisp://runs/{run_id}")).contents
        assert json.loads(content.text)["id"] == run_id
