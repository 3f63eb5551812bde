"""Charts inside the client: which tools have a page, what results carry for it, and what the page may do."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_client import DATA, showing
from front_support import ERAS, Connect
from mcp import Client
from mcp.client import advertise
from test_front_tasks import META, Modern

from aisp_mcp.front.mcp.parts.apps import MIME_TYPE, PAGE, VIEW_KEY, Apps, view_page
from aisp_mcp.server import registry

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def chart_tools(home: Path, demo_tools: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tools of chart_tools.py, here and in the processes of jobs."""
    monkeypatch.setenv("AISP_TOOL_MODULES", "front_tools,chart_tools")
    sys.modules.pop("chart_tools", None)
    importlib.import_module("chart_tools")
    yield
    sys.modules.pop("chart_tools", None)


async def view(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    return (result.meta or {})[VIEW_KEY]


@BOTH
async def test_tools_with_charts_name_a_page_that_can_be_read(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        named = {tool.name: tool.meta for tool in (await client.list_tools()).tools if "ui" in (tool.meta or {})}
        charted = {tool.name for tool in registry.tools() if tool.chart}
        assert "aisp_run_benchmarks" in charted
        assert set(named) == charted & {tool.name for tool in (await client.list_tools()).tools}
        assert all(meta["ui"] == {"resourceUri": PAGE} for meta in named.values())
        if era != "legacy":  # whose capabilities have no extensions
            assert Apps.identifier in (client.server_capabilities.extensions or {})
        assert PAGE in {str(resource.uri) for resource in (await client.list_resources()).resources}
        content = (await client.read_resource(PAGE)).contents[0]
    assert (str(content.uri), content.mime_type) == (PAGE, MIME_TYPE)
    assert content.meta == {"ui": {"csp": {}, "prefersBorder": False}}
    assert content.text == view_page()


@BOTH
async def test_results_carry_drawings_for_clients_that_show_them_only(chart_tools: None, era: str) -> None:
    async with showing(era) as client:
        shown = await client.call_tool("aisp_draw_verdicts", {"name": "ch01:a"})
        plain = await client.call_tool("aisp_demo_echo", {"count": 1})
    async with showing(era, advertise(Apps.identifier, {"mimeTypes": ["text/plain"]})) as client:
        other = await client.call_tool("aisp_draw_verdicts", {"name": "ch01:a"})
    drawing = shown.meta[VIEW_KEY]["drawings"][0]
    assert [row[1] for row in drawing["rows"]] == ["faster", "invalid"]
    assert {shape[0] for shape in drawing["shapes"]} == {"line", "rect", "circle", "text"}
    assert VIEW_KEY not in (plain.meta or {})
    assert VIEW_KEY not in (other.meta or {})
    assert shown.structured_content["result"] == other.structured_content["result"]


async def test_an_error_has_no_drawing(chart_tools: None) -> None:
    async with showing() as client:
        result = await client.call_tool("aisp_draw_verdicts", {"name": "x", "fail": True})
    assert result.is_error
    assert VIEW_KEY not in (result.meta or {})


async def test_a_job_says_how_to_wait_and_its_answer_has_the_charts_of_its_tool(
    chart_tools: None, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pipe = os.open(gate, os.O_RDWR)
    async with showing() as client:
        begun = await view(client, "aisp_draw_later", gate=str(gate), wait_s=0)
        wait = begun["next"]
        assert "is queued" in begun["message"] or "is running" in begun["message"]
        assert wait["name"] == "aisp_job_wait"
        early = await view(client, wait["name"], **{**wait["arguments"], "timeout_s": 0})
        assert early["next"] == wait
        os.write(pipe, b"x")
        late = await view(client, wait["name"], **wait["arguments"])
    os.close(pipe)
    assert late["drawings"][0]["rows"][0][0] == "ch01:late"
    assert "next" not in late


async def test_a_job_that_failed_says_why(chart_tools: None, tmp_path: Path) -> None:
    async with showing() as client:
        begun = await view(client, "aisp_draw_later", gate=str(tmp_path / "none"), wait_s=0)
        ended = await view(client, begun["next"]["name"], **begun["next"]["arguments"])
    assert "INTERNAL" in ended["message"] or "unexpectedly" in ended["message"]
    assert "drawings" not in ended


def test_a_completed_task_carries_the_drawings_too(chart_tools: None, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pipe = os.open(gate, os.O_RDWR)
    os.write(pipe, b"x")
    server = Modern()
    try:
        server._meta[META + "clientCapabilities"]["extensions"][Apps.identifier] = {"mimeTypes": [MIME_TYPE]}
        task = server.tool("aisp_draw_later", gate=str(gate))["taskId"]
        result = server.until(task, "completed")["result"]
    finally:
        server.close()
        os.close(pipe)
    assert result["_meta"][VIEW_KEY]["drawings"][0]["rows"][0][0] == "ch01:late"


@pytest.mark.parametrize(
    ("tool", "arguments", "title"),
    [
        ("aisp_nsys_summary", {"report": str(DATA / "train_step_h200.nsys.sqlite.gz")}, "Where the time"),
        (
            "aisp_nsys_summary",
            {"report": str(DATA / "train_step_h200.nsys.sqlite.gz"), "section": "gaps"},
            "Where the time",
        ),
        ("aisp_profile_hta", {"traces": [str(DATA / "train_step_h200.kineto.json.gz")]}, "Where the time"),
        ("aisp_profile_roofline", {"profile": str(DATA / "five_kernels_h200.ncu-raw.csv.gz")}, "Roofline"),
    ],
)
async def test_real_profiles_are_drawn(
    home: Path, demo_tools: None, tool: str, arguments: dict[str, Any], title: str
) -> None:
    async with showing() as client:
        drawing = (await view(client, tool, **arguments))["drawings"][0]
    assert drawing["title"].startswith(title)
    assert drawing["shapes"]
    assert drawing["rows"]


def test_the_page_is_one_file_that_can_fetch_nothing_and_run_nothing_else() -> None:
    text = view_page()
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\bsrc=|<link|<img|<iframe", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|\bFunction\(|\bfetch\b|XMLHttp", text
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules) == {"default-src", "base-uri", "form-action", "style-src", "script-src"}
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert len(text) < 10_000
