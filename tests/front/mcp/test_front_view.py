"""The page in a real browser, with a stub for the client around it and real answers of tools inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from chart_client import DATA, showing
from chart_rulings import rulings
from mcp_types import TextResourceContents
from view_host import find_browser, show

from aisp_mcp.front.mcp.parts.apps import PAGE, VIEW_KEY, view_page
from aisp_mcp.server.charts import answers, drawing

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium browser on PATH")
HOSTILE = "</script></style><img src=x onerror=\"window.ran='yes'\"><script>window.ran='yes'</script>"


def result(name: str) -> dict[str, Any]:
    """A tool's result as a client hands it on."""
    drawings = answers.draw("verdicts", {"rulings": rulings(name)})
    return {"content": [], "_meta": {VIEW_KEY: {"drawings": [drawing.to_data(figure) for figure in drawings]}}}


def test_the_view_follows_the_protocol_and_draws(tmp_path: Path) -> None:
    seen = show(tmp_path, view_page(), [result("ch07:row_sum")])
    methods = seen.methods()
    assert methods[:2] == ["ui/initialize", "ui/notifications/initialized"]
    assert set(methods[2:]) == {"ui/notifications/size-changed"}
    hello = seen.heard[0]["params"]
    assert hello["protocolVersion"] == "2026-01-26"
    assert hello["appInfo"]["name"]
    assert hello["appCapabilities"]["availableDisplayModes"] == ["inline", "fullscreen"]
    sizes = [message["params"] for message in seen.heard if message.get("method") == "ui/notifications/size-changed"]
    assert sizes[-1]["width"] == 700
    assert sizes[-1]["height"] > 150
    assert seen.answer("a")["result"] == {}
    assert seen.answer("b")["error"]["code"] == -32601
    assert seen.answer("c")["result"] == {}
    assert "ch07:row_sum" in seen.text
    assert "2.00× faster" in seen.text
    assert "invalid, no ratio" in seen.text
    assert 'role="img"' in seen.html
    assert 'aria-label="Ratio of baseline to candidate: 1 faster, 1 invalid.' in seen.html
    assert "Content Security Policy" not in seen.console


@pytest.mark.parametrize(("dark", "scheme", "back"), [(False, "light", "255, 255, 255"), (True, "dark", "20, 23, 27")])
def test_the_view_takes_the_clients_colours(tmp_path: Path, dark: bool, scheme: str, back: str) -> None:
    seen = show(tmp_path, view_page(), [result("a")], dark=dark, width=360)
    assert seen.scheme == scheme
    assert seen.back == f"rgb({back})"
    assert not seen.wide


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    seen = show(tmp_path, view_page(), [result(HOSTILE)])
    assert seen.ran is None
    assert "<img" not in seen.html
    assert seen.html.count("<script") == 1
    assert "&lt;/script&gt;" in seen.html


def test_a_job_is_waited_for_at_the_press_of_a_button(tmp_path: Path) -> None:
    wait = {"name": "aisp_job_wait", "arguments": {"job_ids": ["j_1"], "timeout_s": 45}}
    running = {"content": [], "_meta": {VIEW_KEY: {"message": "Job j_1 is running.", "next": wait}}}
    seen = show(tmp_path, view_page(), [running, running, result("ch01:late")], click=True)
    calls = [message["params"] for message in seen.heard if message.get("method") == "tools/call"]
    assert calls == [wait, wait]
    assert "ch01:late" in seen.text
    assert "Wait for the result" not in seen.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (
            "aisp_nsys_summary",
            {"report": str(DATA / "train_step_h200.nsys.sqlite.gz"), "section": "steps"},
            ["Where the time of the window went", "GPU 0", "idle: not launched yet", "steps"],
        ),
        (
            "aisp_profile_roofline",
            {"profile": str(DATA / "five_kernels_h200.ncu-raw.csv.gz")},
            ["Roofline of the profiled kernels", "tensor bf16 865 TFLOP/s", "memory 4.81 TB/s", "1, 2"],
        ),
    ],
)
async def test_real_answers_are_drawn_by_the_page_the_server_serves(
    home: Path, demo_tools: None, tmp_path: Path, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    async with showing() as client:
        served = (await client.read_resource(PAGE)).contents[0]
        answer = await client.call_tool(tool, arguments)
    assert isinstance(served, TextResourceContents)
    given = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    seen = await anyio.to_thread.run_sync(show, tmp_path, served.text, [given])
    assert [word for word in words if word not in seen.text] == []
    assert "Content Security Policy" not in seen.console


def test_without_a_drawing_the_view_says_so(tmp_path: Path) -> None:
    error = {"structuredContent": {"error": {"message": "No GPU was found.", "hint": "Use a CPU."}}}
    assert "No GPU was found. Use a CPU." in show(tmp_path, view_page(), [error]).text
    assert "has no chart" in show(tmp_path, view_page(), [{"content": []}]).text
