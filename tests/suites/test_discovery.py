"""Discovery by path: what is found, what is a problem of its own, and that nothing is ever imported."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.judge.source_facts import SUMMARY_CHARS
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites.records import Target

BASELINE = '"""Sum rows."""\nfrom aisp_mcp.bench import Benchmark\nclass Rows(Benchmark):\n    pass\n'
CANDIDATE = '"""All at once."""\ndef run(a):\n    return a\n'


def put(root: Path, name: str, text: str = CANDIDATE) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two chapters and a lab; row_sum has a plain and a tiled variant."""
    folder = tmp_path / "suites"
    put(folder, "ch07/baseline_row_sum.py", BASELINE)
    put(folder, "ch07/optimized_row_sum.py")
    put(folder, "ch07/optimized_row_sum_tiled.py")
    put(folder, "ch10/baseline_copy.py", BASELINE)
    put(folder, "ch10/optimized_copy.py")
    put(folder, "labs/fast_norm/baseline_norm.py", BASELINE)
    put(folder, "labs/fast_norm/optimized_norm.py")
    return folder


def selected(root: Path, *names: str) -> list[tuple[str, list[str]]]:
    return [(target.name, [v.name for v in variants]) for target, variants in suites.resolve(root, list(names))]


def only(root: Path, name: str) -> Target:
    return next(target for target in suites.find_targets(root) if target.name == name)


ROW_SUM = ("ch07:row_sum", ["", "tiled"])
TILED = ("ch07:row_sum", ["tiled"])
NORM = ("labs/fast_norm:norm", [""])
ALL = [ROW_SUM, ("ch10:copy", [""]), NORM]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["ch07"], [ROW_SUM]),
        (["ch07:row_sum"], [ROW_SUM]),
        (["ch07:row_sum_tiled"], [TILED]),
        (["ch07:row_sum_*"], [TILED]),
        (["ch07:*"], [ROW_SUM]),
        (["ch*"], ALL[:2]),
        (["*"], ALL),
        (["*:*norm"], [NORM]),
        (["labs/fast_norm"], [NORM]),
        (["labs/fast_norm/"], [NORM]),
        (["fast_norm"], [NORM]),
        (["ch07:row_sum_tiled", "ch07:row_sum_tiled"], [TILED]),
        (["ch07:row_sum_tiled", "ch07"], [("ch07:row_sum", ["tiled", ""])]),
        (["ch10", "ch07"], [("ch10:copy", [""]), ROW_SUM]),
    ],
)
def test_names_select_targets_and_variants(root: Path, names: list[str], expected: list[tuple[str, list[str]]]) -> None:
    assert selected(root, *names) == expected


def test_the_longest_baseline_name_owns_a_candidate(root: Path) -> None:
    put(root, "ch07/baseline_row_sum_tiled.py", BASELINE)
    put(root, "ch07/optimized_row_sum_tiled_wide.py")
    assert selected(root, "ch07") == [("ch07:row_sum", [""]), ("ch07:row_sum_tiled", ["", "wide"])]
    assert selected(root, "ch07:row_sum_tiled") == [("ch07:row_sum_tiled", ["", "wide"])]


@pytest.mark.parametrize(
    ("name", "meant"), [("ch07:rowsum", "ch07:row_sum"), ("row_sum_tiled", "ch07:row_sum_tiled"), ("ch7", "ch07")]
)
def test_an_unknown_name_says_what_may_have_been_meant(root: Path, name: str, meant: str) -> None:
    with pytest.raises(NotFound) as caught:
        suites.resolve(root, ["ch10", name])
    assert caught.value.code == "UNKNOWN_TARGET"
    assert f"'{meant}'" in (caught.value.hint or "")


@given(name=st.text(max_size=300))
def test_any_name_resolves_or_is_unknown(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    if not root.exists():
        put(root, "ch07/baseline_row_sum.py", BASELINE)
    with contextlib.suppress(NotFound):
        assert suites.resolve(root, [name])


def test_a_missing_root_and_a_file_as_root_are_named(root: Path) -> None:
    for path in (root / "nowhere", root / "ch07" / "optimized_row_sum.py"):
        with pytest.raises(NotFound) as caught:
            suites.find_targets(path)
        assert caught.value.code == "NO_BENCH_ROOT"
        assert str(path) in caught.value.message


def test_no_names_is_a_usage_error(root: Path) -> None:
    with pytest.raises(UsageError):
        suites.resolve(root, [])


def test_files_are_never_executed(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    put(root, "ch07/baseline_row_sum.py", BASELINE + f"open({str(mark)!r}, 'w')\n")
    put(root, "ch07/optimized_row_sum.py", CANDIDATE + f"open({str(mark)!r}, 'w')\n")
    suites.find_targets(root)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"def broken(:\n", "syntax error in line 1"),
        (b"x = 1\0", "null bytes"),
        (b"\xff\xfe\x00", ""),
        (b"(" * 5000, ""),
        (b"-" * 100_000 + b"1", ""),
        (b"", "defines no subclass of Benchmark"),
        (b"x = 1\n" * 300_000, "larger than"),
    ],
)
def test_a_broken_baseline_is_its_own_problem(root: Path, content: bytes, why: str) -> None:
    (root / "ch07" / "baseline_row_sum.py").write_bytes(content)
    problem = only(root, "ch07:row_sum").problem
    assert problem
    assert why in problem
    assert only(root, "ch10:copy").problem is None


def test_a_broken_candidate_is_a_problem_of_that_variant(root: Path) -> None:
    put(root, "ch07/optimized_row_sum_tiled.py", "def run(:\n")
    put(root, "ch07/optimized_row_sum_empty.py", "x = 1\n")
    target = only(root, "ch07:row_sum")
    problems = {variant.name: variant.problem for variant in target.variants}
    assert target.problem is None
    assert problems[""] is None
    assert "syntax error" in (problems["tiled"] or "")
    assert problems["empty"] == "defines no function 'run'"


@pytest.mark.parametrize(
    "text", ["run = make()\n", "from helper import run\n", "if fast:\n    def run(a): ...\n", "from helper import *\n"]
)
def test_other_ways_to_define_run_are_no_problem(root: Path, text: str) -> None:
    put(root, "ch07/optimized_row_sum.py", text)
    assert all(variant.problem is None for variant in only(root, "ch07:row_sum").variants)


def test_links_that_leave_the_root_are_refused(root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path / "elsewhere", "baseline_secret.py", '"""Secret words."""\n' + BASELINE)
    (root / "ch07" / "baseline_secret.py").symlink_to(outside)
    (root / "ch11").symlink_to(outside.parent)
    (root / "ch07" / "baseline_dangling.py").symlink_to(root / "none.py")
    (root / "ch07" / "baseline_loop.py").symlink_to(root / "ch07" / "baseline_loop.py")
    (root / "ch10" / "baseline_inside.py").symlink_to(root / "ch07" / "baseline_row_sum.py")
    by_name = {target.name: target for target in suites.find_targets(root)}
    assert "leaves the bench root" in (by_name["ch07:secret"].problem or "")
    assert "Secret" not in by_name["ch07:secret"].summary
    assert by_name["ch07:dangling"].problem
    assert by_name["ch07:loop"].problem
    assert by_name["ch10:inside"].problem is None
    assert not any(target.chapter == "ch11" for target in by_name.values())


def test_a_pipe_with_a_benchmarks_name_does_not_block(root: Path) -> None:
    os.mkfifo(root / "ch07" / "baseline_pipe.py")
    assert only(root, "ch07:pipe").problem == "not a regular file"


def test_a_candidate_without_baseline_is_reported(root: Path) -> None:
    put(root, "ch10/optimized_lonely.py")
    assert "no baseline" in (only(root, "ch10:lonely").problem or "")


def test_an_edited_file_is_read_again(root: Path) -> None:
    path = root / "ch07" / "baseline_row_sum.py"
    assert only(root, "ch07:row_sum").summary == "Sum rows."
    path.write_text(BASELINE.replace("Sum rows.", "Sum columns."))
    assert only(root, "ch07:row_sum").summary == "Sum columns."


def test_literal_goal_and_needs_are_read(root: Path) -> None:
    body = '    goal = "memory"\n    needs = Needs(gpus=2, sm=90, memory_gb=1.5, packages=("triton", "numpy"))\n'
    put(root, "ch07/baseline_row_sum.py", BASELINE.replace("    pass\n", body))
    target = only(root, "ch07:row_sum")
    assert target.goal == "memory"
    assert target.needs == {"gpus": 2, "sm": 90, "memory_gb": 1.5, "packages": "triton, numpy"}


def test_what_is_not_literal_is_left_to_the_loader(root: Path) -> None:
    body = "    goal = GOAL\n    needs = Needs(gpus=count(), sm=90)\n"
    put(root, "ch07/baseline_row_sum.py", BASELINE.replace("    pass\n", body))
    target = only(root, "ch07:row_sum")
    assert (target.goal, target.needs, target.problem) == ("speed", {"sm": 90}, None)


def test_summaries_hold_no_terminal_codes(root: Path) -> None:
    put(root, "ch07/baseline_row_sum.py", BASELINE.replace("Sum rows.", "Sum \\x1b[31m\\u202erows." + "x" * 500))
    summary = only(root, "ch07:row_sum").summary
    assert summary.isprintable()
    assert len(summary) <= SUMMARY_CHARS


def test_hidden_folders_caches_and_deep_trees_are_left_out(root: Path) -> None:
    for folder in (".git", "__pycache__", "a/b/c/d"):
        put(root, f"{folder}/baseline_x.py", BASELINE)
    assert len(suites.find_targets(root)) == 3


def test_chapters_have_topics_and_counts(root: Path) -> None:
    put(root, "ch07/README.md", "# ch07: memory *access*\n\nText.\n")
    put(root, "ch07/optimized_row_sum_bad.py", "(")
    by_name = {chapter.name: chapter for chapter in suites.chapters(root)}
    assert list(by_name) == ["ch07", "ch10", "labs/fast_norm"]
    assert by_name["ch07"].topic == "ch07: memory *access*"
    assert (by_name["ch07"].targets, by_name["ch07"].variants, by_name["ch07"].problems) == (1, 3, 1)
    assert by_name["ch10"].topic is None


def test_chapters_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("ch10", "ch9", "ch2", "lab"):
        put(tmp_path, f"{name}/baseline_x.py", BASELINE)
    assert [target.chapter for target in suites.find_targets(tmp_path)] == ["ch2", "ch9", "ch10", "lab"]


def test_chapters_of_labs_carry_their_root(tmp_path: Path) -> None:
    put(tmp_path / "benchmarks", "ch07/baseline_row_sum.py", BASELINE)
    put(tmp_path / "labs", "flexattention/baseline_flex_attention.py", BASELINE)
    roots = [tmp_path / "benchmarks", tmp_path / "labs"]
    assert [target.name for target in suites.find_targets(roots)] == [
        "ch07:row_sum",
        "labs/flexattention:flex_attention",
    ]
    assert [chapter.name for chapter in suites.chapters(roots)] == ["ch07", "labs/flexattention"]
    assert suites.resolve(roots[1], ["flexattention"]) == suites.resolve(roots, ["labs/flexattention:flex_attention"])


def test_two_files_of_one_name_in_two_roots_are_refused(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        put(root, "ch07/baseline_row_sum.py", BASELINE)
    with pytest.raises(UsageError) as caught:
        suites.find_targets(roots)
    assert caught.value.code == "DUPLICATE_TARGET"


@pytest.mark.parametrize(
    ("lines", "goal", "needs"),
    [
        ("from aisp_mcp.bench.decoder import DecoderBenchmark\nclass A(DecoderBenchmark): ...", "latency", {}),
        ("import aisp_mcp.bench.decoder as d\nclass A(d.DecoderBenchmark):\n    goal = 'throughput'", "throughput", {}),
        ("from aisp_mcp.bench import DistributedBenchmark as D\nclass A(D): ...", "speed", {"ranks": 2}),
        ("from aisp_mcp.bench import ServingBenchmark\nclass B: ...\nclass A(B, ServingBenchmark): ...", "latency", {}),
        (
            "class B(dict): ...\nfrom aisp_mcp.bench.training import *\nclass A(TrainingBenchmark):\n    goal='cold'",
            "cold",
            {},
        ),
    ],
)
def test_bases_are_followed_into_the_library(root: Path, lines: str, goal: str, needs: dict[str, int]) -> None:
    put(root, "ch07/baseline_row_sum.py", f'"""Sum rows."""\n{lines}\n')
    target = only(root, "ch07:row_sum")
    assert (target.goal, target.needs, target.problem) == (goal, needs, None)


def test_the_name_of_a_file_leads_to_its_adaptation(root: Path, tmp_path: Path) -> None:
    put(root, "ch07/baseline_row_sum.py", BASELINE)
    (tmp_path / "reference.py").write_text("class Model: ...\n")
    with pytest.raises(NotFound) as caught:
        suites.resolve([root], [str(tmp_path / "reference.py")])
    assert caught.value.next_steps[0] == (
        "aisp_benchmark_adapt",
        {"path": str(tmp_path / "reference.py"), "to": "pairs"},
    )
