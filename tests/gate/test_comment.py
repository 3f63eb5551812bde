"""The parts that a gate's comment adds to its table: times at earlier commits, and functions that take longer."""

from __future__ import annotations

from aisp_mcp.gate.comment import gate_comment
from aisp_mcp.gate.flames import as_text, most_regressed
from aisp_mcp.gate.history import sparkline
from aisp_mcp.gate.records import GateReport, GateRow, Point
from aisp_mcp.profile.pictures.flame import Weighed

BEFORE = {("main", "step"): 1_000_000, ("main", "step", "sort"): 500_000, ("main", "step", "gone"): 400_000}
AFTER = {("main", "step"): 1_000_000, ("main", "step", "sort"): 2_500_000, ("main", "step", "``` @x"): 300_000}


def graph() -> str:
    return as_text(Weighed(BEFORE, "nanoseconds", "iteration"), Weighed(AFTER, "nanoseconds", "iteration"))


def test_the_difference_of_flame_graphs_names_what_takes_longer() -> None:
    lines = graph().splitlines()
    assert lines[0].startswith("frame per iteration")
    assert [line.split()[0] for line in lines[1:]] == ["main", "step", "sort", "gone", "'''"]
    (sort,) = (line for line in lines if "sort" in line)
    assert "500 µs    2.5 ms   +400 % ████████████████████" in sort
    assert "gone" in lines[4].split()[-2]
    same = Weighed(BEFORE, "nanoseconds")
    assert "same flame graph" in as_text(same, same)
    assert most_regressed([("a", 0.9), ("b", 0.5), ("c", 0.8), ("d", 0.7)]) == ["b", "d", "c"]


def test_a_comment_shows_the_last_commits_and_keeps_names_inside_the_block() -> None:
    points = [
        Point(commit=letter * 40, seconds=seconds) for letter, seconds in (("a", 1e-3), ("b", 1.01e-3), ("c", 2e-3))
    ]
    row = GateRow(target="ch01:a", outcome="regressed", sentence="it", history=points, flame=graph())
    new = GateRow(target="ch01:b", outcome="unchanged", sentence="it", history=points[:2])
    report = GateReport(run_id="r", passed=False, base="b" * 40, head="c" * 40, rows=[row, new], reasons=[], seconds=60)
    text = gate_comment(report)
    assert "| ch01:a | ▁▁█ | `aaaaaaaa` 1 ms → `bbbbbbbb` 1.01 ms → `cccccccc` 2 ms |" in text
    assert "ch01:b | ▁" not in text
    assert text.count("```") == 2
    assert text.count("<details") == text.count("</details>") == 3
    assert sparkline(points[:2]) == "▁▁"
