"""The page in a real browser, with a stub for the client around it and real answers of tools inside."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from chart_client import DATA, showing
from chart_rulings import rulings
from mcp_types import TextResourceContents
from view_host import Seen, find_browser, show, view

from aisp_mcp.front.mcp.parts.apps import PAGE, VIEW_KEY
from aisp_mcp.server.charts import answers, drawing
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import Settings

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium browser on PATH")
HOSTILE = "</script></style><img src=x onerror=\"window.ran='yes'\"><script>window.ran='yes'</script>"


def result(name: str) -> dict[str, Any]:
    """A tool's result as a client hands it on."""
    drawings = answers.draw("verdicts", {"rulings": rulings(name)})
    return {"content": [], "_meta": {VIEW_KEY: {"drawings": [drawing.to_data(figure) for figure in drawings]}}}


REAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "aisp_nsys_summary": (
        {"report": str(DATA / "train_step_h200.nsys.sqlite.gz"), "section": "steps"},
        ["Where the time of the window went", "GPU 0", "idle: not launched yet", "steps"],
    ),
    "aisp_profile_roofline": (
        {"profile": str(DATA / "five_kernels_h200.ncu-raw.csv.gz")},
        ["Roofline of the profiled kernels", "tensor bf16 865 TFLOP/s", "memory 4.81 TB/s", "1, 2"],
    ),
}
WAIT = {"name": "aisp_job_wait", "arguments": {"job_ids": ["j_1"], "timeout_s": 45}}
RUNNING = {"content": [], "_meta": {VIEW_KEY: {"message": "Job j_1 is running.", "next": WAIT}}}
FAILED = {"structuredContent": {"error": {"message": "No GPU was found.", "hint": "Use a CPU."}}}


async def answers_of_tools() -> tuple[str, dict[str, Any]]:
    """The page as the server serves it, and answers of tools as a client hands them on."""
    async with showing() as client:
        served = (await client.read_resource(PAGE)).contents[0]
        called = {tool: await client.call_tool(tool, arguments) for tool, (arguments, _) in REAL.items()}
    assert isinstance(served, TextResourceContents)
    return served.text, {
        tool: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for tool, answer in called.items()
    }


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """All views, in one browser."""
    folder = tmp_path_factory.mktemp("views")
    load_catalog(Settings.from_env({}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AISP_HOME", str(folder / "home"))
        page, called = anyio.run(answers_of_tools)
    views = {
        "of a verdict": view(page, [result("ch07:row_sum")]),
        "in light": view(page, [result("a")], width=360),
        "in dark": view(page, [result("a")], width=360, theme="dark"),
        "of a hostile name": view(page, [result(HOSTILE)]),
        "of a job": view(page, [RUNNING, RUNNING, result("ch01:late")], click=True),
        "of an error": view(page, [FAILED]),
        "of nothing": view(page, [{"content": []}]),
        **{tool: view(page, [answer]) for tool, answer in called.items()},
    }
    return show(folder, views)


def test_the_view_follows_the_protocol_and_draws(shown: dict[str, Seen]) -> None:
    seen = shown["of a verdict"]
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


@pytest.mark.parametrize(("scheme", "back"), [("light", "255, 255, 255"), ("dark", "20, 23, 27")])
def test_the_view_takes_the_clients_colours(shown: dict[str, Seen], scheme: str, back: str) -> None:
    seen = shown[f"in {scheme}"]
    assert seen.scheme == scheme
    assert seen.back == f"rgb({back})"
    assert not seen.wide


def test_names_from_outside_are_text(shown: dict[str, Seen]) -> None:
    seen = shown["of a hostile name"]
    assert seen.ran is None
    assert "<img" not in seen.html
    assert seen.html.count("<script") == 1
    assert "&lt;/script&gt;" in seen.html


def test_a_job_is_waited_for_at_the_press_of_a_button(shown: dict[str, Seen]) -> None:
    seen = shown["of a job"]
    calls = [message["params"] for message in seen.heard if message.get("method") == "tools/call"]
    assert calls == [WAIT, WAIT]
    assert "ch01:late" in seen.text
    assert "Wait for the result" not in seen.text


@pytest.mark.parametrize("tool", REAL)
def test_real_answers_are_drawn_by_the_page_the_server_serves(shown: dict[str, Seen], tool: str) -> None:
    assert [word for word in REAL[tool][1] if word not in shown[tool].text] == []
    assert "Content Security Policy" not in shown[tool].console


def test_without_a_drawing_the_view_says_so(shown: dict[str, Seen]) -> None:
    assert "No GPU was found. Use a CPU." in shown["of an error"].text
    assert "has no chart" in shown["of nothing"].text
