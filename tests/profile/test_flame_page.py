"""The page of a flame graph: units for people, zoom and search by the page's own script, roles in differences."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import oracle_tools
import pytest
from simulate import GEMM, MS, Sim, step

from aisp_mcp.profile.pictures import flame, flame_page
from aisp_mcp.profile.readers import text

STACKS = {("main", "load"): 2_000_000_000, ("main", "train", "matmul"): 5_160_000_000, ("main", "train"): 840_000_000}


@pytest.mark.parametrize(
    ("ns", "expected"),
    [(7_160_000_000, "7.16 s"), (35_000_000, "35 ms"), (1_200, "1.2 µs"), (12, "12 ns"), (0, "0 ns")],
)
def test_times_are_written_for_people(ns, expected):
    assert text.duration(ns) == expected


def test_boxes_say_times_shares_and_changes():
    page = flame_page.to_html(STACKS, "nanoseconds", "Now", {("main", "train", "matmul"): 2_580_000_000})
    assert 'title="matmul: 5.16 s, 64.5 %; before 2.58 s (+100 %)"' in page
    assert 'title="load: 2 s, 25 %; before 0 ns (new)"' in page
    assert "8 s in all, before 2.58 s" in page
    assert "1,234 samples in all" in flame_page.to_html({("a",): 1234}, "samples", "x")


def test_the_page_fetches_nothing_and_runs_its_own_script_only():
    page = flame_page.to_html(STACKS, "nanoseconds", "Now")
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", page)
    assert not re.search(r"https?://|<link|<img|@import", page)


def _acted(page: str, folder: Path, *actions: tuple[str, str]) -> list[dict]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here")
    (folder / "page.html").write_text(page)
    argv = [node, str(Path(__file__).with_name("flame_dom.js")), str(folder / "page.html"), json.dumps(actions)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_click_zooms_and_escape_goes_back(tmp_path):
    page = flame_page.to_html(STACKS, "nanoseconds", "Now")
    whole, inside, back = _acted(page, tmp_path, ("reset", ""), ("click", "train"), ("key", "Escape"))
    assert whole["shown"] == {"main": 100, "load": 25, "train": 75, "matmul": 64.5}
    assert inside["shown"] == {"main": 100, "train": 100, "matmul": pytest.approx(86)}
    assert (whole["reset"], inside["reset"], back["reset"]) == (False, True, False)
    assert back["shown"] == whole["shown"]


def test_search_marks_and_adds_up_without_counting_twice(tmp_path):
    by_name = {**STACKS, ("main", "train", "matmul", "matmul_inner"): 1}
    page = flame_page.to_html(by_name, "nanoseconds", "Now")
    one, none = _acted(page, tmp_path, ("search", "MATMUL"), ("search", ""))
    assert one["found"][0] == "matmul"
    assert one["said"].endswith("boxes, 64.5 % of all")
    assert (none["found"], none["said"]) == ([], "")


def test_thin_boxes_can_be_zoomed_into(tmp_path):
    """One in ten thousand is not a pixel of the whole, and all of the window when it is asked for."""
    by_name = {("main", "much"): 10**9, ("main", "little", "detail"): 10**5}
    page = flame_page.to_html(by_name, "nanoseconds", "x")
    whole, inside = _acted(page, tmp_path, ("reset", ""), ("click", "detail"))
    assert "detail" not in whole["shown"]
    assert inside["shown"]["detail"] == 100


def _run(path, stream, device, first_step, steps, ns):
    sim = Sim()
    for number in range(first_step, first_step + steps):
        step(sim, number, lambda: sim.kernel(GEMM, ns, stream=stream, device=device))
    return sim.kineto(path)


def test_differences_match_by_role_and_iteration(tmp_path):
    """The same program on another device, stream and step numbers, for twice as many steps: nothing has changed."""
    a = _run(tmp_path / "a.json", stream=7, device=0, first_step=2, steps=4, ns=2 * MS)
    b = _run(tmp_path / "b.json", stream=33, device=5, first_step=40, steps=8, ns=2 * MS)
    first, two = flame.pair(a, b)
    assert first.stacks == two.stacks
    assert ("device", "compute stream", GEMM) in first.stacks
    assert (first.per, first.stacks["device", "compute stream", GEMM]) == ("iteration", 2 * MS)
    assert {stack[1] for stack in first.stacks if stack[0] == "main thread"} == {"ProfilerStep"}


def test_stacks_of_several_processes_add_up(tmp_path):
    for name, lines in (("a", "process 11;main 2\nprocess 12;main 3\n"), ("b", "process 7;main 4\n")):
        (tmp_path / name).write_text(lines)
    first, two = flame.pair(tmp_path / "a", tmp_path / "b")
    assert (first.stacks, two.stacks) == ({("process", "main"): 5}, {("process", "main"): 4})


def test_ranks_and_streams_are_told_apart_by_their_work(tmp_path):
    sim = Sim()
    for device in (4, 6):
        sim.kernel(GEMM, 5 * MS, stream=7, device=device)
        sim.kernel(GEMM, 1 * MS, stream=9, device=device)
        sim.collective(1 * MS, 1 << 20, stream=20, device=device)
    weights, _ = flame.pair(*[sim.kineto(tmp_path / f"{name}.json") for name in "ab"])
    assert {stack[:2] for stack in weights.stacks if "rank" in stack[0]} == {
        (f"rank {rank}", stream)
        for rank in (0, 1)
        for stream in ("compute stream", "compute stream 2", "communication stream")
    }


def test_two_real_ranks_compare(tmp_path):
    first, two = flame.pair(*[oracle_tools.DATA / f"rank{rank}.kineto.json.gz" for rank in (0, 1)])
    shared = set(first.stacks) & set(two.stacks)
    assert sum(two.stacks[s] for s in shared) > 0.9 * sum(two.stacks.values())
    assert len(flame_page.to_html(two.stacks, "nanoseconds", "x", first.stacks)) < 2_000_000
