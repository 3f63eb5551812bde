"""The dashboard's timeline of a trace: windows, search, keys and dragging, and the way to Perfetto."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_client import DATA
from dashboard_support import Dashboard, fill, keep_profile
from test_front_dashboard_browser import CHROMIUM, FLAGS, Watched

from aisp_mcp.store.database import Store

PAGE = "/timeline?id=j_000000000000000000nsys"
TRACE = DATA / "train_step_h200.kineto.json.gz"
# The viewer's side of the protocol as its documentation gives it: a PING is answered once the page listens, and an
# object named perfetto is a trace. The listener comes late, so that messages sent before it are lost, as they may be.
VIEWER = """<!doctype html><title>viewer</title><script>
const heard = window.heard = { pings: 0, origins: new Set() };
setTimeout(() => addEventListener("message", async ({ source, origin, data }) => {
  heard.origins.add(origin);
  if (data === "PING") { heard.pings += 1; source.postMessage("PONG", "*"); }
  if (!data.perfetto) return;
  const digest = await crypto.subtle.digest("SHA-256", data.perfetto.buffer);
  heard.digest = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  Object.assign(heard, { bytes: data.perfetto.buffer.byteLength, title: data.perfetto.title });
}), 300);
</script>"""


@pytest.fixture
def dashboard(home: Path) -> Iterator[Dashboard]:
    fill(home)
    running = Dashboard()
    yield running
    running.stop()


def window(address: str) -> tuple[int, int]:
    """(begin, end) in ns; a begin of 0 is left out."""
    begin, end = (re.search(rf"{name}=(\d+)", address) for name in ("from", "to"))
    assert end
    return int(begin[1]) if begin else 0, int(end[1])


def test_windows_and_search_are_in_the_address(dashboard: Dashboard) -> None:
    """Each step's link names a window inside the trace; a search counts what a reader of the file counts."""
    with dashboard.client() as web:
        page = web.get(PAGE)
        assert page.status_code == 200
        assert "GPU 0, stream 7" in page.text
        steps = dict(re.findall(r'<a href="([^"]+)">(zoom in|zoom out|all)</a>', page.text))
        whole = window(next(href for href, words in steps.items() if words == "all"))
        inner = window(next(href for href, words in steps.items() if words == "zoom in"))
        assert 0 == whole[0] < inner[0] < inner[1] < whole[1]
        near = web.get(f"{PAGE}&from={inner[0]}&to={inner[1]}").text
        assert f'data-window="{inner[0]} {inner[1]}"' in near
        found = web.get(f"{PAGE}&find=NVJET").text
        assert int(re.search(r"(\d+) events with “nvjet”", found)[1]) > 0
        assert "0 events with “no such kernel”" in web.get(f"{PAGE}&find=no such kernel").text
        assert len(page.content) <= 180_000
        bad = web.get(f"{PAGE}&from=now")
        assert bad.status_code == 422
        assert "BAD_WINDOW" in bad.text
        assert web.get("/timeline?id=j_0000000000000000000ncu").status_code == 422


def test_a_trace_of_one_rank_is_shown_whole(home: Path, dashboard: Dashboard) -> None:
    with Store(home) as store:
        job_id = keep_profile(store, "torch", "aisp_profile_torch", {"trace": str(TRACE)})
    with dashboard.client() as web:
        page = web.get(f"/profile?id={job_id}").text
    for words in (
        "breakdown",
        "exposed copies",
        "ProfilerStep#2",
        "waits for the host to launch",
        "23.6 ms: first to last device",
    ):
        assert words in page, words
    assert not re.search(r"[\d,]{4,} h\b", page)  # a clock's own zero is no time of the trace


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api: Any = pytest.importorskip("playwright.sync_api", reason="pip install 'aisp-mcp[browser-tests]'")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="apt-get install --no-install-recommends chromium")


@pytest.mark.browser
@needs_chromium
def test_a_trace_reaches_perfetto_inside_the_browser(home: Path, browser: Any, dashboard: Dashboard) -> None:
    """The viewer's window gets the file itself; nothing else leaves the dashboard's origin."""
    with Store(home) as store:
        job_id = keep_profile(store, "torch", "aisp_profile_torch", {"trace": str(TRACE)})
    watched = Watched(browser, dashboard)
    page = watched.page
    asked: list[str] = []

    def viewer(route: Any) -> None:
        asked.append(f"{route.request.method} {route.request.url} {route.request.post_data}")
        route.fulfill(body=VIEWER, content_type="text/html")

    page.context.route("https://ui.perfetto.dev/**", viewer)
    page.goto(f"{dashboard.origin}/profile?id={job_id}")
    with page.context.expect_page() as opened:
        page.click("text=Open in Perfetto")
    window = opened.value
    window.wait_for_function("window.heard?.digest")
    heard = window.evaluate("({ ...heard, origins: [...heard.origins] })")
    assert heard["digest"] == hashlib.sha256(TRACE.read_bytes()).hexdigest()
    assert (heard["bytes"], heard["title"], heard["origins"]) == (
        TRACE.stat().st_size,
        "ch07:row_sum",
        [dashboard.origin],
    )
    assert heard["pings"] >= 1
    assert asked == ["GET https://ui.perfetto.dev/ None"]
    assert watched.wrong == []


@pytest.mark.browser
@needs_chromium
def test_dragging_and_keys_zoom(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard, viewport={"width": 1100, "height": 800})
    page = watched.page
    page.goto(dashboard.origin + PAGE)
    whole = [int(one) for one in page.locator("#timeline").get_attribute("data-window").split()]
    chart = page.locator("#timeline svg").bounding_box()
    page.mouse.move(chart["x"] + chart["width"] * 0.25, chart["y"] + 30)
    page.mouse.down()
    page.mouse.move(chart["x"] + chart["width"] * 0.75, chart["y"] + 30)
    page.mouse.up()
    page.wait_for_url(re.compile(r"from=\d+"))
    begin, end = window(page.url)
    assert (end - begin) / (whole[1] - whole[0]) == pytest.approx(0.5, abs=0.02)
    page.keyboard.press("-")
    page.wait_for_url(lambda address: window(address) != (begin, end))
    wider = window(page.url)
    assert wider[1] - wider[0] > end - begin
    page.go_back()
    assert watched.wrong == []
