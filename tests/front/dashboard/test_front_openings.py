"""Each page opens with its answer: a sentence and a picture; addresses can be shared; empty pages say what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from chart_client import DATA
from dashboard_support import NSYS, START, Dashboard, comparison, fill, keep_profile, keep_run

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict import workload
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run

RANKS = [DATA / f"rank{number}.kineto.json.gz" for number in (0, 1)]
BASE, HEAD = "a" * 40, "b" * 40
KINETO, GATE = "j_0000000000000000kineto", "j_000000000000000000gate"
BEFORE, AFTER = "r_0000000000000000000018", "r_0000000000000000000019"
LARGE = "r_0000000000000000000253"
WORKLOAD = "r_0000000000000000000255"
OPENINGS = {
    "/": r"\d+ verdicts: \d+ faster.* 1 target got worse; no job",
    "/targets": r"\d+ of \d+ variants measured: ",
    "/verdicts?q=verdict:faster": r"\d+ verdicts match the filter: \d+ faster\.",
    f"/run?id={AFTER}": r"5 candidates: 4 faster and 1 inconclusive\. Largest proven gain: ch07:row_sum_ones_tiled",
    "/history?target=ch07:row_sum_ones": r"the level is 1\.70× since \d{4}-\d\d-\d\d and was 2\.40× before",
    f"/compare?before={BEFORE}&after={AFTER}": r"(Could not judge|[Ss]lower|No).*\d of \d",
    f"/run?id={WORKLOAD}": r"trade-off: 1\.231x over this workload .*; slower at M=64: 0\.80x, 25 % of the time",
    "/profile?id=j_000000000000000000nsys": r"\d+ %",
    f"/profile?id={KINETO}": r"\d+ %",
    "/profile?id=j_0000000000000000000ncu": r"nvjet_sm90",
    "/machine": r"(No usable GPU|GPU)",
    f"/job?id={GATE}": r"bbbbbbbbbb against aaaaaaaaaa does not pass: of 2 benchmarks, 1 regressed and 1 unchanged\.",
    "/planners?tool=aisp_distributed_plan&model=llama-3.1-8b&gpus=8&gpu=H100-SXM": r"SXM: DP\d+.* per step.* GiB",
    "/planners?tool=aisp_inference_quantization&model=llama-3.1-70b&gpu=H100-SXM": r"H100-SXM: \S+, [\d.]+ GiB of",
    "/analysis?section=recommendations": r"For speed, try [\w-]+ first \(.*published [\d.]+ to [\d.]+x\)",
}


def gate_row(target: str, outcome: str, ratio: float) -> dict[str, Any]:
    numbers = {"ratio": ratio, "low": ratio * 0.97, "high": ratio * 1.03, "noise_floor": 0.02}
    return {"target": target, "outcome": outcome, "sentence": f"{target} {outcome}", **numbers}


def run_with_profiles(store: Store, name: str, run_id: str, trace: Path) -> None:
    """A job whose run profiled a candidate."""
    one = {"target": "ch07:row_sum_ones", "side": "candidate", "profiler": "torch", "files": [trace.name]}
    passes = {"folder": str(trace.parent), "passes": [{**one, "side": "baseline", "files": []}, one]}
    keep_profile(
        store, name, "aisp_run_benchmarks", {"run_id": run_id, "rulings": [], "profiles": passes}, profile="minimal"
    )


def keep_workload(store: Store) -> None:
    """A run of two regimes, one of which is slower."""
    ratios = {"M=8192": 1.5, "M=64": 0.8}
    measured = [
        workload.Measured(
            name, launches, seconds, Comparison.model_validate(comparison(f"mm@{name}", "", ratios[name]))
        )
        for name, launches, seconds in (("M=8192", 6, 3.0), ("M=64", 94, 1.0))
    ]
    run_id = keep_run(store, 255, [comparison(f"mm@{name}", "", ratio) for name, ratio in ratios.items()], START - 3)
    judged = workload.judge("shapes.csv", measured, None)
    store.save_run(store.run(Run, run_id, None).model_copy(update={"workload": judged}), None)


@pytest.fixture(scope="module")
def web(shared_env: dict[str, str]) -> Iterator[Any]:
    home = Path(shared_env["AISP_HOME"])
    fill(home)
    with Store(home) as store:
        rows = [gate_row("ch07:row_sum_ones", "regressed", 0.49), gate_row("ch09:linear_layout", "unchanged", 1.0)]
        report = {
            "run_id": AFTER,
            "passed": False,
            "base": BASE,
            "head": HEAD,
            "rows": rows,
            "reasons": [],
            "seconds": 9,
        }
        keep_profile(store, "gate", "aisp_benchmark_gate", report)
        keep_profile(store, "kineto", "aisp_profile_torch", {"trace": str(RANKS[0])})
        keep_profile(store, "nsys2", "aisp_profile_nsys", {"database": str(NSYS)})
        run_with_profiles(store, "before", BEFORE, RANKS[0])
        run_with_profiles(store, "after", AFTER, RANKS[1])
        many = [comparison("ch02:many", f"v{number}", 1.5 + number / 100) for number in range(253)]
        keep_run(store, 253, many, START - 1)
        keep_run(store, 254, [comparison("ch02:hasty", "", 3.0, replicates=1)], START - 2, preset="quick")
        keep_workload(store)
    dashboard = Dashboard(env={**os.environ, **shared_env})
    with dashboard.client() as client:
        yield client
    dashboard.stop()


@pytest.mark.parametrize("address", OPENINGS)
def test_a_page_opens_with_a_sentence_and_a_picture(web: Any, address: str) -> None:
    page = web.get(address)
    assert page.status_code == 200, page.text
    lead = re.search(r'<p class="lead">(.*?)</p>', page.text, re.S)
    assert lead, page.text[-2000:]
    assert re.search(OPENINGS[address], unescape(lead[1])), lead[1]
    assert '<svg class="chart"' in page.text.partition('class="lead"')[2]
    titles = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", page.text, re.S)
    assert [title for title in titles if "aisp_" in title or re.search(r"\w_\w", title.replace("row_sum", ""))] == []


def test_a_workload_shows_its_regimes_by_time(web: Any) -> None:
    page = unescape(web.get(f"/run?id={WORKLOAD}").text)
    rows = re.findall(r"(\d+) % of the time · ([\d.]+)× \[[^]]*\] (\w+)", page)
    assert list(dict.fromkeys(rows)) == [("75", "1.50", "faster"), ("25", "0.80", "slower")]
    assert "shapes.csv" in page


def test_the_menu_has_four_groups_and_knows_the_page(web: Any) -> None:
    page = web.get(f"/run?id={AFTER}").text
    assert re.findall(r'<h2 id="group-\d">(\w+)</h2>', page) == ["Results", "Explain", "Plan", "System"]
    assert re.findall(r'aria-current="page">(\w+)</a></li>', page) == ["Verdicts"]
    assert re.findall(r'aria-current="page">(\w+)</a></li>', web.get("/analysis?section=recommendations").text) == [
        "Recommendations"
    ]


def test_a_profile_shows_timeline_flame_graph_and_kernels_by_kind(web: Any) -> None:
    page = web.get(f"/profile?id={KINETO}").text
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    for heading in ("What to try first", "Timeline", "Flame graph", "Largest kernels"):
        assert heading in headings
    assert "communication" in re.findall(r'<li class="k-(\w+)">', page)
    assert re.search(r'class="part k-communication"', page)
    assert re.search(r'class="cell k-communication"', page)
    assert re.search(r'class="fill k-product"', page)
    table = page.partition("breakdown")[2]
    assert "idle unknown" not in page.partition("Every figure")[0]
    assert table


def test_the_difference_of_two_profiles_has_an_address(web: Any) -> None:
    page = web.get("/profile?id=j_000000000000000000nsys&before=j_00000000000000000nsys2").text
    assert '<option value="j_00000000000000000nsys2" selected>' in page
    assert 'class="cell even"' in page  # the same profile twice: nothing changed
    assert not re.search(r'class="cell (hot|cold)', page)
    assert web.get("/profile?id=j_000000000000000000nsys&before=none").status_code == 404


def test_runs_compare_with_the_flame_graphs_of_their_candidates(web: Any) -> None:
    page = web.get(f"/compare?before={BEFORE}&after={AFTER}").text
    section = page.partition("Difference of the flame graphs")[2]
    assert "Candidate of ch07:row_sum_ones before and after" in section
    assert 'class="cell ' in section
    link = unescape(re.search(r'href="(/flame\?[^"]+)"', section)[1])
    assert "before=j_0000000000000000before.1" in link
    assert "before" in web.get(link).text
    assert web.get("/profile?id=j_00000000000000000after.1").status_code == 200
    for wrong in ("j_00000000000000000after.0", "j_00000000000000000after.9", "j_00000000000000000after.x"):
        assert web.get(f"/profile?id={wrong}").status_code == 404, wrong
    assert "no profiles of the same target" in web.get("/compare").text or "Difference of" in web.get("/compare").text


def test_a_run_of_hundreds_is_shown_in_parts(web: Any) -> None:
    page = web.get(f"/run?id={LARGE}")
    assert len(page.content) <= 150_000
    assert page.text.count("<article") == 25
    last = web.get(f"/run?id={LARGE}&part=11").text
    assert last.count("<article") == 3
    assert "<h3>ch02:many_v252 " in last
    assert "<h3>ch02:many_v252 " not in page.text
    assert web.get(f"/run?id={LARGE}&verdict=slower&part=99").status_code == 200


def test_a_quick_verdict_is_hollow_and_says_so(web: Any) -> None:
    page = web.get("/verdicts?q=hasty").text
    assert re.search(r'class="verdict faster provisional".*?>faster<span class="unseen">, provisional</span>', page)
    assert "provisional" not in web.get("/verdicts?q=many").text


def test_a_missing_page_is_a_page(web: Any) -> None:
    for address in ("/nothing", "/static-not", "/api2"):
        page = web.get(address)
        assert page.status_code == 404
        assert "<nav" in page.text
        assert "Not found" in page.text
    assert "script-src 'self'" in web.get("/nothing").headers["content-security-policy"]


def test_empty_pages_give_the_command_that_fills_them(home: Path) -> None:
    dashboard = Dashboard("--allow-run")
    try:
        with dashboard.client() as web:
            for address, command in (
                ("/", "aisp bench run"),
                ("/verdicts", "aisp bench run"),
                ("/profiles", "aisp profile torch"),
                ("/jobs", "aisp bench run"),
                ("/machine", "aisp hw speed"),
                ("/compare", "aisp bench run"),
                ("/analysis", "aisp bench run"),
                ("/analysis?section=tradeoffs", "aisp bench run"),
            ):
                page = web.get(address).text
                assert re.search(rf'class="empty">.*?<code>{command}', page, re.S), address
            page = web.get("/targets?chapter=ch07").text
            assert "<option selected>default</option>" in page
            assert "<option>quick</option>" in page
    finally:
        dashboard.stop()
