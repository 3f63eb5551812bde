"""The dashboard in a real browser: pages, keys, colours, live jobs. Needs chromium and playwright."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_support import Dashboard, fill

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None or importlib.util.find_spec("playwright") is None,
        reason="apt-get install --no-install-recommends chromium; pip install 'aisp-mcp[browser-tests]'",
    ),
]
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PAGES = (
    *("/", "/targets", "/targets?chapter=ch07", "/verdicts", "/compare", "/profiles", "/machine", "/jobs"),
    *("/settings", "/run?id=r_0000000000000000000019", "/history?target=ch07:row_sum_ones"),
    *(f"/analysis?section={name}" for name in ("leaderboards", "tradeoffs", "pareto", "stacking", "recommendations")),
    *("/analysis?section=whatif&latency_ms=100", "/job?id=j_000000000000000000nsys"),
    *("/profile?id=j_000000000000000000nsys", "/profile?id=j_0000000000000000000ncu"),
    "/planners?tool=aisp_distributed_plan&model=llama-3.1-70b&gpus=64&gpu=H100-SXM",
)

# The names of the tables that show only a part of their columns.
CUT = """[...document.querySelectorAll(".wide:has(table)")].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => e.getAttribute("aria-label"))"""


@pytest.fixture
def dashboard(home: Path) -> Iterator[Dashboard]:
    fill(home)
    running = Dashboard("--allow-run")
    yield running
    running.stop()


class Watched:
    """A page, what its console said, and what it fetched from elsewhere."""

    def __init__(self, browser: Any, dashboard: Dashboard, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda sent: self._look(sent.url, dashboard.origin))
        self.page.goto(dashboard.link)

    def _look(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "data:")):
            self.wrong.append(f"foreign request: {url}")


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def test_every_page_is_clean(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard, viewport={"width": 1100, "height": 800})
    axe = os.environ.get("AXE_CORE")  # the path of axe.min.js; it is no part of this repository
    for path in PAGES:
        watched.page.goto(dashboard.origin + path)
        assert watched.page.locator("h1").count() == 1, path
        assert watched.page.evaluate("window.ran") is None, path
        if axe:
            watched.page.evaluate(Path(axe).read_text("utf-8"))
            found = watched.page.evaluate("axe.run().then((done) => done.violations)")
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], path
    watched.page.goto(f"{dashboard.origin}/flame?id=j_000000000000000000nsys")
    watched.page.locator(".row button").nth(1).click()
    assert watched.wrong == []


def test_a_narrow_screen_needs_no_sideways_scrolling(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard, viewport={"width": 360, "height": 700})
    for path in PAGES:
        watched.page.goto(dashboard.origin + path)
        wide = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 1, path
        assert watched.page.evaluate(CUT) == [], path
    watched.page.set_viewport_size({"width": 1366, "height": 900})
    for path in ("/", "/verdicts", "/targets", "/jobs", "/analysis"):
        watched.page.goto(dashboard.origin + path)
        assert watched.page.evaluate(CUT) == [], path


@pytest.mark.parametrize(("scheme", "back"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")])
def test_colours_follow_the_system_and_the_settings(browser: Any, dashboard: Dashboard, scheme: str, back: str) -> None:
    watched = Watched(browser, dashboard, color_scheme=scheme)
    colour = "getComputedStyle(document.body).backgroundColor"
    assert watched.page.evaluate(colour) == back
    watched.page.goto(dashboard.origin + "/settings")
    watched.page.select_option("[name=theme]", "dark" if scheme == "light" else "light")
    watched.page.click("text=Save in this browser")
    watched.page.wait_for_selector("h1:has-text('Settings')")
    other = {"rgb(255, 255, 255)", "rgb(20, 23, 27)"} - {back}
    assert {watched.page.evaluate(colour)} == other


def test_keys_reach_everything(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard)
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("g")
    with page.expect_navigation():
        page.keyboard.press("v")
    assert page.url.endswith("/verdicts")
    page.keyboard.press("/")
    page.keyboard.type("verdict:inconclusive")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert re.search(r"q=verdict(:|%3A)inconclusive", page.url)
    assert page.locator("tbody tr").count() == 20
    page.go_back()
    assert page.locator("tbody tr").count() == 50
    assert watched.wrong == []


def test_sliders_answer_without_leaving_the_page(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard)
    page = watched.page
    page.goto(dashboard.origin + "/analysis?section=whatif")
    page.locator("[data-for=latency_ms]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#answer dl")
    page.wait_for_function("location.search.includes('latency_ms=0.001')")
    assert "misses" in page.locator("#answer").inner_text()
    assert watched.wrong == []


def test_a_job_is_followed_live(browser: Any, dashboard: Dashboard, tmp_path: Path) -> None:
    watched = Watched(browser, dashboard)
    page = watched.page
    page.goto(dashboard.origin + "/jobs")
    token = page.locator("meta[name=csrf]").get_attribute("content")
    with page.expect_response(lambda answer: "/api/events" in answer.url):
        page.reload()
    gate = tmp_path / "gate"  # the job goes on for as long as nobody writes into it
    os.mkfifo(gate)
    call = """([token, body]) => fetch('/api/tools/aisp_demo_count', {method: 'POST', body, headers: {'X-CSRF-Token':
        token, 'Content-Type': 'application/json'}}).then(answer => answer.status)"""
    body = json.dumps({"steps": 5, "gate": str(gate), "wait_s": 0})
    assert page.evaluate(call, [token, body]) == 202
    page.wait_for_selector("tr:has-text('Demo count') .state.running", timeout=20_000)
    with gate.open("wb", buffering=0) as pipe:
        pipe.write(b"12")
        page.wait_for_selector("tr:has-text('step 2') progress", timeout=20_000)
        page.click("text=Demo count")
        page.wait_for_selector("#job progress", timeout=20_000)
        page.click("text=Cancel this job")
        page.wait_for_selector("#job .state.cancelled", timeout=20_000)
    assert watched.wrong == []


def test_a_copy_opens_from_the_disk(browser: Any, dashboard: Dashboard, cli: Any, tmp_path: Path) -> None:
    assert cli("dashboard", "export", str(tmp_path / "site"), "--files", "40").returncode == 0
    watched = Watched(browser, dashboard)
    watched.page.goto((tmp_path / "site" / "index.html").as_uri())
    watched.page.click("text=Machine")
    assert watched.page.locator("h1").inner_text() == "Machine"
    assert [one for one in watched.wrong if "file://" not in one] == []


def test_a_phone_opens_the_menu(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard, viewport={"width": 390, "height": 800})
    page, entry = watched.page, watched.page.locator("#pages a:has-text('Machine')")
    assert not entry.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".menu").get_attribute("aria-expanded") == "true"
    entry.click()
    assert page.locator("h1").inner_text() == "Machine"
    assert not entry.is_visible()
    assert watched.wrong == []


def test_charts_say_what_is_pointed_at_and_flame_graphs_zoom(browser: Any, dashboard: Dashboard) -> None:
    watched = Watched(browser, dashboard, viewport={"width": 1100, "height": 900})
    page = watched.page
    page.goto(f"{dashboard.origin}/profile?id=j_000000000000000000nsys")
    page.hover(".chart .part >> nth=3")
    assert page.locator("#tip").inner_text().strip()
    cells = page.locator(".zoomable svg svg")
    third = cells.nth(3)
    before = third.bounding_box()["width"]
    third.scroll_into_view_if_needed()
    third.click()
    assert third.bounding_box()["width"] > before
    assert third.get_attribute("width") == "100%"
    cells.nth(0).click(position={"x": 2, "y": 5})
    assert watched.wrong == []


def test_pages_work_without_script(browser: Any, dashboard: Dashboard) -> None:
    page = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800}).new_page()
    page.goto(dashboard.link)
    page.click("#pages a:has-text('Targets')")
    assert page.locator("h1").inner_text() == "Targets"
    page.goto(f"{dashboard.origin}/compare")
    page.click("button:has-text('Compare')")
    assert "before=" in page.url
