"""The gate over a real git repository: what regressed, what is missing, what a policy makes of it, and the comment."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.gate import strays
from aisp_mcp.gate.comment import gate_comment
from aisp_mcp.gate.gate import GateRequest, _report, _with_looks
from aisp_mcp.gate.policy import Look, judge_looks, look, needs_look
from aisp_mcp.gate.records import GateReport, GateRow
from aisp_mcp.judge.native import build
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs import commits
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.runs.export.comment import MAX_CHARS, marker
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import ANY_KIND, VerdictFilter

ROOT = Path(__file__).resolve().parents[2]

SPEC = '''"""Scale and shift."""
from aisp_mcp.bench import Benchmark, Work


class Scale(Benchmark):
    n = 1 << 18

    def params(self, rng):
        return {"w": rng.randn(self.n)}

    def inputs(self, rng):
        return {"a": rng.randn(self.n)}

    def work(self):
        return Work(flops=2 * self.n, bytes=8 * self.n)

    def run(self, a, w):
        return a * w + 1
'''
VARIANT = '''"""The library's, with its weights prepared."""
from mylib import scale


def prepare(params, example):
    return {"doubled": params["w"] * 2}


def run(a, doubled):
    return scale(a, doubled)
'''
FAST = "def scale(a, doubled):\n    return a * (doubled / 2) + 1\n"
SLOW = "def scale(a, doubled):\n    for _ in range(200):\n        b = a * (doubled / 2)\n    return b + 1\n"
NATIVE = """/* One loop.

launch:
  function: scale
  arguments: [a, w, out, a.numel]
  outputs: {out: {like: a}}
*/
#include <cstdint>
extern "C" int scale(const float* a, const float* w, float* out, int64_t n) {
    for (int times = 0; times < 1; ++times)
        for (int64_t i = 0; i < n; ++i) reinterpret_cast<volatile float*>(out)[i] = a[i] * w[i] + 1;
    return 0;
}
"""


def git(repo: Path, *words: str) -> None:
    options = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repo), *options, *words], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits: the second makes the library that a benchmark calls slower."""
    folder = tmp_path / "project"
    chapter = folder / "benchmarks" / "ch01"
    chapter.mkdir(parents=True)
    (folder / "mylib.py").write_text(FAST)
    (chapter / "baseline_scale.py").write_text(SPEC)
    (chapter / "optimized_scale.py").write_text(VARIANT)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    (folder / "mylib.py").write_text(SLOW)
    git(folder, "commit", "-qam", "two")
    return folder


def gate(cli_here: Any, repo: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = cli_here("bench", "gate", *words, "--repo", str(repo), "--json", timeout=280)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_what_cannot_be_gated_is_said(cli_here: Any, repo: Path, tmp_path: Path) -> None:
    assert gate(cli_here, repo, "--base", "nowhere")[1]["error"]["code"] == "NO_SUCH_REVISION"
    assert gate(cli_here, tmp_path, "--base", "HEAD")[1]["error"]["code"] == "NO_REPOSITORY"
    error = gate(cli_here, repo, "--base", "HEAD", "--targets", "ch99")[1]["error"]
    assert (error["code"], "matches ch99" in error["message"]) == ("NO_TARGETS_AT_BASE", True)


def test_a_base_without_pairs_is_told_how_to_begin(cli_here: Any, tmp_path: Path) -> None:
    (tmp_path / "stats.py").write_text("def work():\n    return 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    error = gate(cli_here, tmp_path, "--base", "HEAD")[1]["error"]
    assert error["code"] == "NO_TARGETS_AT_BASE"
    assert "pytest --aisp --aisp-base HEAD" in error["hint"]
    assert "aisp gate init" in error["hint"]


def test_missing_and_new_benchmarks_are_outcomes_of_their_own(cli_here: Any, repo: Path) -> None:
    git(repo, "mv", "benchmarks/ch01/optimized_scale.py", "benchmarks/ch01/optimized_scale_other.py")
    git(repo, "commit", "-qm", "three")
    code, answer = gate(cli_here, repo, "--base", "HEAD~1", "--head", "HEAD")
    outcomes = {row["target"]: row["outcome"] for row in answer["result"]["rows"]}
    assert outcomes == {"ch01:scale": "missing", "ch01:scale_other": "new"}
    assert (code, answer["result"]["passed"]) == (3, False)
    code, answer = gate(cli_here, repo, "--base", "HEAD~1", "--head", "HEAD", "--missing", "warn")
    assert (code, answer["result"]["passed"]) == (0, None)  # nothing was judged
    assert answer["result"]["reasons"][0].startswith("warn: ch01:scale missing")
    printed = cli_here("bench", "gate", "--base", "HEAD~1", "--head", "HEAD", "--repo", str(repo))
    assert (printed.returncode, printed.stderr) == (3, "")
    assert "ch01:scale" in printed.stdout


def test_a_file_cannot_take_the_name_of_another_one(cli_here: Any, repo: Path) -> None:
    """optimized_scale.cpp and optimized_scale_cpp.py are both `scale_cpp`: a slow one could hide behind a fast one."""
    chapter = repo / "benchmarks" / "ch01"
    (chapter / "optimized_scale.cpp").write_text(NATIVE)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "three")
    (chapter / "optimized_scale_cpp.py").write_text(VARIANT)
    code, answer = gate(cli_here, repo, "--base", "HEAD", "--targets", "ch01:scale_cpp")
    assert (code, [row["outcome"] for row in answer["result"]["rows"]]) == (3, ["missing"])


def test_a_head_that_needs_more_than_the_base_fails(cli_here: Any, repo: Path) -> None:
    candidate = repo / "benchmarks" / "ch01" / "optimized_scale.py"
    candidate.write_text(f"import no_such_package\n{VARIANT}")
    code, answer = gate(cli_here, repo, "--base", "HEAD")
    (row,) = answer["result"]["rows"]
    assert (code, row["outcome"]) == (3, "failed")
    assert row["sentence"].startswith("HEAD_NEEDS: The head needs the package no_such_package")
    git(repo, "commit", "-qam", "three")
    (repo / "mylib.py").write_text(FAST)
    code, answer = gate(cli_here, repo, "--base", "HEAD")  # the base lacks it, too: nobody's fault
    assert (code, answer["result"]["rows"][0]["outcome"]) == (0, "could_not_judge")


def test_a_commit_is_measured_as_it_is(repo: Path, tmp_path: Path) -> None:
    """Attributes in the commit neither leave files out nor change them; links out of it lead nowhere."""
    (repo / ".gitattributes").write_text("mylib.py export-ignore\nversion.txt export-subst\n")
    (repo / "version.txt").write_text("$Format:%H$\n")
    (repo / "inside").symlink_to("mylib.py")
    (repo / "outside").symlink_to(tmp_path)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "three")
    folder = commits.export(repo, "HEAD", tmp_path / "base").folder
    assert (folder / "mylib.py").read_text() == (folder / "inside").read_text() == SLOW
    assert (folder / "version.txt").read_text() == "$Format:%H$\n"
    assert not os.path.lexists(folder / "outside")


def test_modules_of_the_working_tree_are_strays(tmp_path: Path) -> None:
    tree, work = tmp_path / "tree", tmp_path / "tree" / "work"
    expected = [work / "base" / "sums.py", tree / ".venv" / "site-packages" / "numpy.py", tmp_path / "other.py"]
    assert strays.find(map(str, expected), tree, work) == ""
    assert strays.find(map(str, [*expected, tree / "code" / "sums.py"]), tree, work) == "code/sums.py"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_installation_of_the_working_tree_is_not_measured_as_the_base(
    cli: Any, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, expected in (("python", "regressed"), ("code", "failed")):
        git(repo, "switch", "-q", "--orphan", folder)
        chapter = repo / "benchmarks" / "ch01"
        chapter.mkdir(parents=True)
        (chapter / "baseline_scale.py").write_text(SPEC)
        (chapter / "optimized_scale.py").write_text(VARIANT)
        (repo / folder).mkdir()
        (repo / folder / "mylib.py").write_text(FAST)
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "base")
        (repo / folder / "mylib.py").write_text(SLOW)
        git(repo, "commit", "-qam", "head")
        monkeypatch.setenv("PYTHONPATH", str(repo / folder), prepend=os.pathsep)
        code, answer = gate(cli, repo, "--base", "HEAD~1", "--head", "HEAD", "--preset", "quick")
        assert (code, answer["result"]["rows"][0]["outcome"]) == (3, expected)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(build.compiler(".cpp") is None, reason="no C++ compiler")
def test_candidates_in_c_are_judged_between_commits(cli: Any, repo: Path) -> None:
    candidate = repo / "benchmarks" / "ch01" / "optimized_scale.cpp"
    candidate.write_text(NATIVE)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "three")
    candidate.write_text(NATIVE.replace("times < 1", "times < 50"))
    words = ["--base", "HEAD", "--targets", "ch01:scale_cpp", "--preset", "quick"]
    code, answer = gate(cli, repo, *words)
    assert (code, answer["result"]["rows"][0]["outcome"]) == (3, "regressed")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_goes_from_two_commits_to_a_comment(home: Path, repo: Path, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "ci" / "gate.sh"
    done = subprocess.run(
        [str(script), "HEAD~1", "HEAD", "--", "--preset", "quick"],
        cwd=repo,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    out = repo / "aisp-gate"
    text = (out / "comment.md").read_text()
    assert done.returncode == 3, done.stderr
    assert text.startswith(marker("gate"))
    assert "ch01:scale | 🔴 regressed" in text
    assert "looks" in text
    assert (out / "regressed.txt").read_text() == "ch01:scale\n"
    assert json.loads((out / "software.json").read_text())["status"] == "ok"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_commit_twice_passes_and_the_working_tree_counts(cli: Any, repo: Path) -> None:
    code, same = gate(cli, repo, "--base", "HEAD~1", "--head", "HEAD~1", "--preset", "quick")
    outcome = same["result"]["rows"][0]["outcome"]
    assert (code, outcome in ("unchanged", "could_not_judge")) == (0, True)
    assert same["result"]["passed"] is (True if outcome == "unchanged" else None)
    (repo / "mylib.py").write_text("def scale(a, doubled):\n    return a * 0\n")
    code, wrong = gate(cli, repo, "--base", "HEAD~1", "--preset", "quick")
    assert (code, wrong["result"]["rows"][0]["outcome"]) == (3, "wrong")
    assert wrong["result"]["head"] == "working tree"


def seen(ratio: float, half: float, *, parent: float | None = None, verdict: str = "slower") -> Look:
    """The look at a comparison of five processes, with a noise floor of 1 %, whose clocks agree unless one is given."""
    clocks = {"used": "worker", "ratio_parent": parent or ratio, "ratio_worker": ratio, "delta": 0.05}
    interval = {"low": ratio - half, "high": ratio + half, "level": 0.95}
    figures = {"ratio": ratio, "interval": interval, "noise_floor": 0.01, "clocks": clocks}
    about = {"target": "ch01:scale", "candidate": "", "sentence": f"{verdict}: it", "isolation": "L1", "replicates": 5}
    return look(Comparison.model_validate({**about, **figures, "verdict": verdict}))


PROVEN, SMALL, VAGUE = seen(0.9, 0.02), seen(0.97, 0.01), seen(0.97, 0.035, verdict="inconclusive")
CLEAN, DOUBTFUL = seen(1.001, 0.003, verdict="same"), seen(0.9, 0.02, parent=1.01)
SOME_SLOW, BARELY = seen(0.8, 0.25, verdict="inconclusive"), seen(0.985, 0.002)
BROKEN = seen(0.9, 0.02, verdict="incorrect")


@pytest.mark.parametrize(
    ("looks", "outcome", "words"),
    [
        ([PROVEN, PROVEN, SMALL], "regressed", "0.923x over 3 looks, which all show"),
        ([seen(0.97, 0.02, verdict="inconclusive"), PROVEN, SMALL], "regressed", "which all show"),
        ([PROVEN, VAGUE, VAGUE, VAGUE, VAGUE], "regressed", "all but the first together prove it"),
        ([PROVEN, CLEAN, PROVEN, PROVEN, SMALL], "regressed", "of which 4 show"),
        ([SOME_SLOW, SOME_SLOW, SOME_SLOW], "regressed", "slower in some of its processes"),
        ([PROVEN, SOME_SLOW, CLEAN, SOME_SLOW, SOME_SLOW], "regressed", "slower in some of its processes"),
        ([PROVEN, CLEAN, CLEAN], "could_not_judge", "of which 1 show"),
        ([SOME_SLOW, CLEAN, CLEAN], "could_not_judge", "of which 1 show"),
        ([PROVEN, CLEAN, PROVEN, VAGUE], "could_not_judge", "of which 2 show"),
        ([PROVEN, *[seen(0.985, 0.035, verdict="inconclusive")] * 4], "could_not_judge", "of which 1 show"),
        ([DOUBTFUL], "could_not_judge", "one of the two clocks"),
        ([BARELY, BARELY, BARELY], "could_not_judge", "within the margin"),
    ],
)
def test_a_slowdown_fails_only_where_looks_prove_it(looks: list[Look], outcome: str, words: str) -> None:
    for number in range(1, len(looks)):
        assert needs_look(looks[:number], 0.02)
    assert not needs_look(looks, 0.02)
    found = judge_looks(looks, 0.02)
    assert found[0] == outcome
    assert words in found[1]


def test_what_needs_no_further_look() -> None:
    assert not any(needs_look([first], 0.02) for first in (CLEAN, VAGUE, DOUBTFUL, BROKEN))
    assert not needs_look([PROVEN, BROKEN], 0.02)
    assert judge_looks([PROVEN], 0.02) == ("could_not_judge", "look 2 gave no comparison")


@pytest.mark.parametrize("record", ["calibration-2-cores-beside-others.json", "calibration-64-cores.json"])
def test_simulated_pull_requests_keep_the_gates_promise(record: str) -> None:
    """Drawn from recorded noise, judged by the gate's policy: no false failures, slowdowns are found."""
    run_gate_aa = script("run_gate_aa")
    rows, planted = run_gate_aa.recorded(ROOT / "results" / record), run_gate_aa.Planted
    none, slower, mixed = (
        run_gate_aa.pulls(rows, count, head)
        for count, head in ((1500, planted(0.0)), (60, planted(0.10)), (60, planted(0.7, 0.5)))
    )
    assert none["failed"] <= 2
    assert slower["found"] > 0.85
    assert mixed["found"] > 0.75


def script(name: str) -> Any:
    """A module of the validation folder."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "validation" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_comment_fits_and_stays_text() -> None:
    hostile = GateRow(target="ch01:<script>|@everyone", outcome="regressed", sentence="x" * 10_000 + "</details>")
    rows = [hostile, *(GateRow(target=f"ch01:t{n}", outcome="unchanged", sentence="same") for n in range(3000))]
    report = GateReport(
        run_id="r", passed=False, base="a" * 40, head="b" * 40, rows=rows, reasons=[], seconds=60, cost_usd=0.5
    )
    text = gate_comment(report)
    assert len(text) <= MAX_CHARS
    assert text.splitlines()[0] == "<!-- aisp:gate -->"
    assert "more benchmarks do not fit here" in text
    assert "<script>" not in text
    assert text.count("</details>") == 1
    assert text.index("regressed") < text.index("unchanged")
    assert "1.0 min, $0.50" in text


def test_a_comment_states_the_resolution_and_never_passes_what_was_not_judged() -> None:
    row = GateRow(target="ch01:a", outcome="could_not_judge", sentence="inconclusive: it", resolution=0.08)
    report = GateReport(run_id="r", passed=True, base="a" * 40, head="b" * 40, rows=[row], reasons=[], seconds=60)
    text = gate_comment(report)
    assert "### Performance gate judged nothing, could not judge 1 of 1" in text
    assert "would have detected a slowdown of 8 %" in text
    unchanged = row.model_copy(update={"outcome": "unchanged"})
    assert "Performance gate passed, could not judge 1 of 2" in gate_comment(
        report.model_copy(update={"rows": [row, unchanged]})
    )


@pytest.mark.parametrize(
    ("outcomes", "strict", "passed", "sentence"),
    [
        (
            ["could_not_judge", "could_not_judge"],
            False,
            None,
            "Judged 0 of 2: load 10 on 2 cores",
        ),
        (["could_not_judge"], True, False, "The change did not pass: judged 0 of 1: load 10 on 2 cores"),
        (["unchanged", "new"], True, True, "The change passed: judged 1 of 2"),
    ],
)
def test_a_gate_says_how_much_it_judged(
    outcomes: list[Any], strict: bool, passed: bool | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0, 9.0, 9.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    run = Run.model_validate({"id": "j", "created_at": 1.0, "preset": "quick", "profile": "", "environment": {}})
    request = GateRequest(Path(), "a", None, [], [], {}, strict=strict)
    rows = [GateRow(target="ch01:a", outcome=outcome, sentence="") for outcome in outcomes]
    sides = (Checkout("a" * 40, Path()), Checkout("b" * 40, Path()))
    report = _report(run, request, sides, rows, 1.0)
    assert (report.passed, report.sentence) == (passed, sentence)


def test_the_looks_of_a_gate_are_one_row(tmp_path: Path) -> None:
    facts = {"target": "ch01:scale", "candidate": "", "isolation": "L1", "replicates": 5, "sentence": "slower: 0.9x"}
    looks = [
        Comparison.model_validate({**facts, "verdict": verdict, "ratio": 0.9, "interval": {"low": 0.8, "high": 0.95}})
        for verdict in ("slower", "inconclusive")
    ]
    about = {"created_at": 1.0, "kind": "gate", "preset": "default", "profile": "portable", "environment": {}}
    run = Run.model_validate({"id": "j_1", "comparisons": looks[:1], **about})
    rows = [GateRow(target="ch01:scale", outcome="could_not_judge", sentence="look 3 gave no comparison")]
    with Store(tmp_path) as store:
        store.save_run(_with_looks(run, {"ch01:scale": looks}, rows), None)
        (row,), _ = store.list_verdicts(VerdictFilter(kinds=ANY_KIND))
        assert (row.verdict, store.count_verdicts(VerdictFilter(kinds=ANY_KIND))) == (
            "inconclusive",
            {"inconclusive": 1},
        )
        (stored,) = store.run(Run, "j_1").comparisons
    assert stored.disclosed["looks"] == ["slower 0.900× [0.80×, 0.950×]", "inconclusive 0.900× [0.80×, 0.950×]"]
