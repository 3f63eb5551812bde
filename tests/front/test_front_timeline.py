"""The dashboard's timeline of a trace: windows, search, keys and dragging, and the way to Perfetto."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_support import Dashboard, fill
from test_front_dashboard_browser import CHROMIUM, FLAGS, Watched

PAGE = "/timeline?id=j_000000000000000000nsys"


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


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="apt-get install --no-install-recommends chromium")
def test_dragging_and_keys_zoom(dashboard: Dashboard) -> None:
    sync_api: Any = pytest.importorskip("playwright.sync_api", reason="pip install 'aisp-mcp[browser-tests]'")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
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
        browser.close()
