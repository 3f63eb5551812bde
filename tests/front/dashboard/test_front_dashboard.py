"""The dashboard as a process: who may look, what every page says, what is refused, and the copy as files."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx2
import pytest
from dashboard_support import HOSTILE, Dashboard, fill, fill_own
from front_support import Cli
from waiting import PATIENCE_S

from aisp_mcp.runs.history import segments

PAGES = (
    *("/", "/targets", "/targets?chapter=ch07", "/targets?q=row_sum", "/verdicts", "/verdicts?q=verdict:faster"),
    *("/compare", "/profiles", "/machine", "/jobs", "/jobs?state=succeeded", "/planners", "/settings"),
    *("/analysis", "/analysis?section=tradeoffs", "/analysis?section=pareto", "/analysis?section=whatif"),
    *("/analysis?section=whatif&latency_ms=100", "/analysis?section=stacking", "/analysis?section=scaling"),
    *("/analysis?section=power", "/analysis?section=cost", "/analysis?section=cost&usd_per_hour=2"),
    *("/analysis?section=recommendations", "/history?target=ch07:row_sum_ones", "/history?target=none:such"),
    *("/run?id=r_0000000000000000000019", "/job?id=j_000000000000000000nsys", "/profile?id=j_000000000000000000nsys"),
    *("/profile?id=j_000000000000000000nsys&section=gaps", "/profile?id=j_0000000000000000000ncu"),
    "/planners?tool=aisp_inference_kv_cache&model=llama-3.1-70b",
    "/planners?tool=aisp_distributed_plan&model=llama-3.1-8b&gpus=8&gpu=H100-SXM",
)


@pytest.fixture
def filled(home: Path) -> Path:
    fill(home)
    return home


@pytest.fixture(scope="module")
def shown(shared_env: dict[str, str]) -> Iterator[Dashboard]:
    """One for all tests that only look; started as a user starts it."""
    fill(Path(shared_env["AISP_HOME"]))
    fill_own(Path(shared_env["AISP_HOME"]))
    dashboard = Dashboard(env={**os.environ, **shared_env}, popen=subprocess.Popen)
    yield dashboard
    dashboard.stop()


@pytest.fixture
def working(filled: Path) -> Iterator[Dashboard]:
    dashboard = Dashboard("--allow-run")
    yield dashboard
    dashboard.stop()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A job that reads it goes on for as long as nobody writes."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def csrf_of(web: httpx2.Client) -> str:
    found = re.search(r'name="csrf" content="(\w+)"', web.get("/").text)
    assert found
    return found[1]


def test_every_page_answers_under_the_policy_and_within_its_weight(shown: Dashboard) -> None:
    with shown.client() as web:
        style_and_script = sum(len(web.get(f"/static/{name}").content) for name in ("app.css", "app.js"))
        for path in PAGES:
            page = web.get(path)
            assert page.status_code == 200, (path, page.text[-500:])
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert len(page.content) + style_and_script <= 180_000, path
            assert "<script>window" not in page.text, path
            assert "UNKNOWN_TOOL" not in page.text, path
            assert not re.search(r"<[^>\"]+ (style|on\w+)=", page.text), path
            assert set(re.findall(r'(?:src|href)="(https?:[^"]+)"', page.text)) == set(), path
            for ratio in re.findall(r'class="n">(\d[\d.]*×)([^<]*<[^>]+>[^<]*)', page.text):
                assert "[" in ratio[1] or "memory" in page.text, (path, ratio)


def test_pages_say_what_is_stored(shown: Dashboard) -> None:
    with shown.client() as web:
        home, run = web.get("/").text, web.get("/run?id=r_0000000000000000000019").text
        number = re.compile(r'class="lead">(\d+ verdicts: [^.]*)\.')
        assert number.findall(home)[0] == number.findall(web.get("/verdicts").text)[0]
        assert "ch07:row_sum_ones" in home.partition("Regressions")[2].partition("Latest verdicts")[0]
        assert "ch07:row_sum_tiled" not in home.partition("Regressions")[2].partition("Latest verdicts")[0]
        for words in ("400 of 400 calls compared with float64", "parent clock used", "2 %", "start 1.5 s", "L2"):
            assert words in unescape(run), words
        assert "Levels: 2.40×" in web.get("/history?target=ch07:row_sum_ones").text
        assert "The level does not change" in web.get("/history?target=ch07:row_sum_tiled").text
        leaderboards = web.get("/analysis?section=leaderboards").text
        assert re.search(r"A candidate is proven faster for \d+ of (1 target|\d+ targets)\.", leaderboards)
        assert "synergy" in web.get("/analysis?section=stacking").text
        assert "NVIDIA H200" in web.get("/profile?id=j_000000000000000000nsys").text
        assert "Roofline" in web.get("/profile?id=j_0000000000000000000ncu").text
        flame = web.get("/flame?id=j_000000000000000000nsys")
        assert flame.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
        assert "sdpa" in flame.text


def test_functions_and_gates_have_their_own_histories(shown: Dashboard) -> None:
    with shown.client() as web:
        targets = web.get("/targets").text
        assert "Functions of your own" in targets
        assert "2 functions of your own judged" in targets
        named = web.get("/history?target=slow:nearest_fast").text  # as a run names it: the newest of that name
        assert "slow:nearest@3f2a9c_fast" in named
        assert "1.38×" not in named
        gate = web.get("/history?target=ch01:scale").text
        assert "no verdicts yet" not in gate
        assert 'class="verdict inconclusive"' in gate
        assert "after 2 looks" in web.get("/run?id=r_0000000000000000000033").text
        assert "gate of ch01:scale" in web.get("/compare").text
        assert "#</th>" not in web.get("/analysis").text, "targets have no ranks among each other"
        assert "slow:nearest@" not in web.get("/").text.partition("Regressions")[2].partition("Latest verdicts")[0]


def test_a_verdict_without_proof_is_never_green(shown: Dashboard) -> None:
    with shown.client() as web:
        page, style = web.get("/verdicts?q=ch09:linear_layout").text, web.get("/static/app.css").text
    assert 'class="verdict inconclusive"' in page
    assert 'class="verdict faster"' not in page
    grey = re.search(r"\.inconclusive \{ color: light-dark\(#(\w{2})(\w{2})(\w{2})", style)
    assert grey
    levels = [int(part, 16) for part in grey.groups()]
    assert max(levels) - min(levels) < 0x20


def test_strangers_and_wrong_names_are_refused(shown: Dashboard) -> None:
    with shown.client() as web, shown.stranger() as stranger:
        for path in (*PAGES, "/flame?id=x", "/api/benchmarks", "/api/events", "/nothing"):
            assert stranger.get(path).status_code == 401, path
        assert stranger.get("/login?token=" + "x" * 43).status_code == 401
        assert stranger.get("/login").status_code == 401
        assert "Sign in</h1>" in stranger.get("/verdicts").text
        assert stranger.get("/", headers={"Cookie": f"{next(iter(web.cookies))}=guess"}).status_code == 401
        assert web.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert web.get("/", headers={"Host": f"localhost:{web.base_url.port}"}).status_code == 200
        assert web.get("/", headers={"Origin": "http://evil.example"}).status_code == 403
        assert web.get("/api/summary").json()["rulings"] == 84


def test_the_link_works_for_as_long_as_the_server_runs(shown: Dashboard) -> None:
    for _ in range(2):
        with shown.stranger() as web:
            assert web.get(shown.link).status_code == 303
            assert web.get("/").status_code == 200


def test_the_cookie_is_for_our_pages_alone(shown: Dashboard) -> None:
    with shown.stranger() as web:
        cookie = web.get(shown.link).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_nothing_is_started_without_permission(shown: Dashboard) -> None:
    with shown.client() as web:
        token = csrf_of(web)
        assert (
            web.post("/start/aisp_run_benchmarks", data={"csrf": token, "targets": "ch07:row_sum"}).status_code == 409
        )
        assert web.post("/cancel", data={"csrf": token, "job_id": "x"}).status_code == 409
        answer = web.post("/api/tools/aisp_run_benchmarks", json={"targets": ["ch07"]}, headers={"X-CSRF-Token": token})
        assert answer.json()["error"]["code"] == "READ_ONLY"
        assert web.get("/api/jobs?state=queued").json()["rows"] == []


def test_forms_of_other_pages_are_refused(working: Dashboard) -> None:
    with working.client() as web:
        for data in ({}, {"csrf": "x" * 64}, {"csrf": ""}):
            for path in ("/start/aisp_demo_count", "/cancel", "/settings"):
                assert web.post(path, data=data).status_code == 403, path
        assert web.post("/api/tools/aisp_demo_echo", json={"count": 1}).status_code == 403
        headers = {"X-CSRF-Token": csrf_of(web)}
        assert web.post("/api/tools/aisp_demo_echo", json={"count": 1}, headers=headers).status_code == 200
        assert web.post("/start/aisp_demo_count", content=b"x" * 100_000).status_code == 403


def test_a_form_starts_a_job_and_another_ends_it(working: Dashboard, gate: Path) -> None:
    with working.client() as web:
        token = csrf_of(web)
        form = {"csrf": token, "steps": "2", "gate": str(gate)}
        begun = web.post("/start/aisp_demo_count", data=form)
        assert begun.status_code == 303
        page = web.get(begun.headers["location"])
        assert "Cancel this job" in page.text
        job_id = begun.headers["location"].partition("id=")[2]
        assert web.post("/cancel", data={"csrf": token, "job_id": job_id}).status_code == 303
        waiting = {"job_ids": [job_id], "timeout_s": 30}
        ended = web.post("/api/tools/aisp_job_wait", json=waiting, headers={"X-CSRF-Token": token})
        assert ended.status_code == 200
        assert web.get(f"/api/jobs/{job_id}").json()["state"] == "cancelled"
        wrong = web.post("/start/aisp_demo_count", data={"csrf": token, "steps": "many"})
        assert wrong.status_code == 422
        assert web.post("/start/aisp_demo_echo", data={"csrf": token, "count": "1"}).status_code == 422


def test_no_path_leads_out(shown: Dashboard) -> None:
    with shown.client() as web:
        port = web.base_url.port
        cookie = f"{next(iter(web.cookies))}={next(iter(web.cookies.values()))}"
        for path in ("/profile?id=../../etc", "/run?id=../../etc", "/job?id=..", "/flame?id=/etc/passwd"):
            assert web.get(path).status_code == 404, path
        for raw in ("/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static//etc/passwd"):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as wire:
                head = f"GET {raw} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
                wire.sendall(head.encode())
                assert wire.makefile("rb").readline().split()[1] == b"404", raw


def test_settings_stay_in_the_browser(shown: Dashboard, tmp_path: Path) -> None:
    suites = tmp_path / "suites" / "ch01"
    suites.mkdir(parents=True)
    (suites / "baseline_mine.py").write_text('"""Mine."""\n')
    with shown.client() as web:
        token = csrf_of(web)
        form = {"csrf": token, "bench_root": str(suites.parent), "theme": "dark"}
        assert web.post("/settings", data=form).status_code == 303
        assert 'data-theme="dark"' in web.get("/").text
        assert "ch01:mine" in web.get("/targets?chapter=ch01").text
        assert web.post("/settings", data={**form, "theme": "</html>"}).status_code == 303
        assert 'data-theme="auto"' in web.get("/").text


def test_the_copy_as_files_holds_every_page_and_no_dead_link(filled: Path, cli: Cli, tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = cli("dashboard", "export", str(site), "--files", "30")
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text("utf-8") for path in site.glob("*.html")}
    assert len(pages) == 30
    assert {"index.html", "targets.html", "machine.html", "jobs.html", "compare.html"} <= set(pages)
    for name, text in pages.items():
        found = set(re.findall(r'(?:href|src)="([^"]+)"', text))
        linked = {one for one in found if not one.startswith(("data:", "#"))}
        assert [one for one in linked if not (site / unescape(one)).is_file()] == [], name
        assert "<script>window" not in text
        assert 'method="post"' not in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert "thesis.tex is a file" in cli("dashboard", "export", str(tmp_path / "mine" / "thesis.tex")).stderr
    assert cli("dashboard", "export", "/proc/nothing").stderr.startswith("error UNWRITABLE: ")
    assert "FOLDER_NOT_EMPTY" in cli("dashboard", "export", str(tmp_path / "mine")).stderr
    assert cli("dashboard", "export", str(site), "--files", "5").returncode == 0


def test_one_run_can_be_shown_from_its_file(filled: Path, cli: Cli, tmp_path: Path) -> None:
    file = filled / "runs" / "r_0000000000000000000003" / "run.json"
    done = cli("dashboard", "export", str(tmp_path / "site"), "--files", "5", "--data", str(file))
    assert done.returncode == 0, done.stderr
    assert "61 faster" not in (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "3 faster" in (tmp_path / "site" / "index.html").read_text("utf-8")
    (tmp_path / "no.json").write_text(json.dumps({"run": 1}))
    assert "BAD_RUN_FILE" in cli("dashboard", "export", str(tmp_path / "x"), "--data", str(tmp_path / "no.json")).stderr


def test_steps_are_found_and_noise_is_none() -> None:
    assert segments([1.0, 1.01, 0.99, 2.0, 2.01, 1.99]) == [(0, 3, 1.0), (3, 6, 2.0)]
    assert segments([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 9.0]) == [(0, 7, 1.0)]
    assert segments([1.0, 1.0, 1.0, 1.01, 1.01, 1.01], floor=0.02) == [(0, 6, 1.005)]
    assert segments([]) == []


def test_hostile_names_are_text(shown: Dashboard) -> None:
    with shown.client() as web:
        for path in ("/", "/verdicts", "/run?id=r_0000000000000000000019", "/compare", "/analysis?section=pareto"):
            text = web.get(path).text
            assert "\x1b" not in text
            assert "&lt;script&gt;window.ran" in text, path
        assert web.get("/history", params={"target": HOSTILE}).status_code == 200
