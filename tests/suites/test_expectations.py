"""Expectations: which entry fits a device, how verdicts are graded, and what the command line writes."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.records.measurement import Figures, Interval
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs import measure
from aisp_mcp.server.context import Context
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import expectations

BASELINE = "from aisp_mcp.bench import Benchmark\nclass One(Benchmark): ...\n"
COPY = """\
from aisp_mcp.bench import Benchmark, Work


class One(Benchmark):
    n = 1 << 16

    def inputs(self, rng):
        return {"x": rng.randn(self.n)}

    def work(self):
        return Work(bytes=8 * self.n)

    def run(self, x):
        return x.clone()
"""
EXPECT = """\
# a comment that stays
copy:
  cpu: {direction: faster, range: [2, 4], source: "measured, a machine, 2026-11"}
  cpu amx_bf16: {direction: slower, source: "expected: emulation"}
  cuda: {direction: same, informational: "no cache"}
  NVIDIA H200: {direction: faster, range: [8, 9], source: "measured, H200, 2026-11"}
copy_blocked:
  cpu: {direction: slower, range: [0.5, 0.9], source: "measured, a machine, 2026-11"}
"""
HOST = {"host": {"cpu": "Intel(R) Xeon(R) 8488C", "isa": ["avx2"], "usable": 2}}
H200 = {**HOST, "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-1"}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One target with two variants and a file of expectations."""
    chapter = tmp_path / "suites" / "ch02"
    chapter.mkdir(parents=True)
    (chapter / "baseline_copy.py").write_text(BASELINE)
    for name in ("copy", "copy_blocked"):
        (chapter / f"optimized_{name}.py").write_text("def run(): ...\n")
    (chapter / "expect.yaml").write_text(EXPECT)
    return tmp_path / "suites"


def run(verdict: str, ratio: float | None, candidate: str = "", environment: object = HOST) -> Run:
    """A stored run of one comparison, its interval 1 % wide."""
    fields: dict[str, object] = {"candidate": candidate, "sentence": "s", "isolation": "L1", "replicates": 5}
    if ratio is not None:
        fields |= {"ratio": ratio, "interval": Interval(low=ratio * 0.995, high=ratio * 1.005)}
    row = Comparison.model_validate({"target": "ch02:copy", "verdict": verdict, **fields})
    about = {"id": "r_a", "created_at": 0.0, "preset": "default", "profile": "portable", "environment": environment}
    return Run.model_validate({**about, "comparisons": [row]})


def mark(root: Path, given: Run) -> tuple[str, str | None]:
    (grade,) = expectations.grade(given, expectations.load(suites.find_targets(root)))
    return grade.mark, grade.device


@pytest.mark.parametrize(
    ("verdict", "ratio", "expected"),
    [
        ("faster", 3.0, "met"), ("faster", 4.01, "met"), ("faster", 4.1, "contradicted"),
        ("faster", 1.9, "contradicted"), ("same", 1.0, "contradicted"), ("slower", 0.5, "contradicted"),
        ("inconclusive", 3.0, "undecided"), ("incorrect", None, "contradicted"), ("invalid", None, "contradicted"),
    ],
)  # fmt: skip
def test_grades_known_by_hand(root: Path, verdict: str, ratio: float | None, expected: str) -> None:
    assert mark(root, run(verdict, ratio)) == (expected, "cpu")


def test_the_entry_with_the_most_words_of_the_device_counts(root: Path) -> None:
    amx = {"host": {**HOST["host"], "isa": ["avx2", "amx_bf16"]}}
    assert mark(root, run("slower", 0.3, environment=amx)) == ("met", "cpu amx_bf16")
    assert mark(root, run("faster", 8.5, environment=H200)) == ("met", "NVIDIA H200")
    a100 = {**HOST, "gpus": [{"name": "NVIDIA A100-SXM4-80GB"}]}
    assert mark(root, run("slower", 0.5, environment=a100)) == ("informational", "cuda")
    assert mark(root, run("faster", 2.0, "blocked", H200)) == ("no_expectation", None)
    entries = expectations.load(suites.find_targets(root))
    assert expectations.fitting(entries, expectations.named("H200"))["ch02:copy"].device == "cuda"
    assert expectations.fitting(entries, expectations.named("nvidia h200"))["ch02:copy"].device == "NVIDIA H200"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("copy:\n  cpu: {direction: quicker, source: x}\n", "direction"),
        ("copy:\n  cpu: {direction: faster}\n", "source or informational"),
        ("copy:\n  cpu: {direction: faster, range: [3, 2], source: x}\n", "ascending"),
        ("copy: faster\n", "expect.yaml"),
        ("copy: [\n", "expect.yaml"),
    ],
)
def test_a_wrong_entry_is_named(root: Path, text: str, message: str) -> None:
    (root / "ch02" / "expect.yaml").write_text(text)
    with pytest.raises(BenchmarkError, match=message) as caught:
        expectations.load(suites.find_targets(root))
    assert caught.value.code == "BAD_EXPECTATIONS"


def test_an_entry_of_no_candidate_is_named(root: Path) -> None:
    (root / "ch02" / "expect.yaml").write_text(EXPECT.replace("copy_blocked", "copy_tiled"))
    assert [text.partition(": ")[2] for text in expectations.unclaimed(suites.find_targets(root))] == ["copy_tiled"]


def test_the_command_line_lists_grades_and_proves(cli_here: Any, home: Path, root: Path) -> None:
    with Store(home) as store:
        store.save_run(run("faster", 6.0), None)
    where = ("--bench-root", str(root), "--json")
    listed = json.loads(cli_here("bench", "expectations", "--hardware", "cpu", "--min-speedup", "1.05", *where).stdout)
    assert [(row["candidate"], row["device"]) for row in listed["result"]["entries"]] == [("ch02:copy", "cpu")]
    graded = json.loads(cli_here("bench", "expectations", "--run-id", "r_a", *where).stdout)["result"]
    assert graded["counts"] == {"contradicted": 1}
    proved = json.loads(cli_here("bench", "proof", "--run-id", "r_a", *where).stdout)["result"]
    (row,) = csv.DictReader(Path(proved["file"]["path"]).read_text("utf-8").splitlines())
    assert (row["mark"], row["expected_low"], row["ratio"]) == ("contradicted", "2.0", "6.0")


def test_regressions_are_accepted_with_evidence_where_writing_was_allowed(
    cli_here: Any, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(home) as store:
        store.save_run(run("faster", 6.0), None)
    command = ("bench", "proof", "--run-id", "r_a", "--accept-regressions", "--bench-root", str(root), "--json")
    refused = json.loads(cli_here(*command).stdout)
    assert refused["error"]["code"] == "OUTSIDE_ROOTS"
    assert (root / "ch02" / "expect.yaml").read_text() == EXPECT
    monkeypatch.setenv("AISP_ALLOW_WRITE", str(root))
    accepted = json.loads(cli_here(*command).stdout)["result"]
    assert [row["candidate"] for row in accepted["rewritten"]] == ["ch02:copy"]
    text = (root / "ch02" / "expect.yaml").read_text()
    assert text.startswith("# a comment that stays\n")
    assert "1970-01-01, preset default, run r_a" in text
    assert [line for line in text.splitlines() if "cpu: {" not in line] == [
        line for line in EXPECT.splitlines() if "cpu: {" not in line
    ]
    again = json.loads(cli_here("bench", "expectations", "--run-id", "r_a", "--bench-root", str(root), "--json").stdout)
    assert again["result"]["counts"] == {"met": 1}


def test_a_run_that_may_not_rewrite_is_refused_before_it_measures(cli_here: Any, home: Path, root: Path) -> None:
    command = ("bench", "run", "ch02:copy", "--accept-regressions", "--bench-root", str(root), "--json")
    refused = json.loads(cli_here(*command).stdout)
    assert refused["error"]["code"] == "OUTSIDE_ROOTS"
    with Store(home) as store:
        assert store.list_runs(Run)[0] == []


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_run_rewrites_what_it_contradicts(cli: Any, home: Path, root: Path) -> None:
    chapter = root / "ch02"
    (chapter / "baseline_copy.py").write_text(COPY)
    (chapter / "optimized_copy.py").write_text(
        '"""A thousand times."""\n\n\ndef run(x):\n    for _ in range(1000):\n        y = x.clone()\n    return y\n'
    )
    (chapter / "expect.yaml").write_text("copy:\n  cpu: {direction: faster, range: [2, 4], source: guess}\n")
    command = ("bench", "run", "ch02:copy", "--replicates", "2", "--accept-regressions", "--bench-root", str(root))
    env = {**os.environ, "AISP_ALLOW_WRITE": str(root), "AISP_EXECUTOR": "local"}
    answer = json.loads(cli(*command, "--json", env=env, timeout=180).stdout)["result"]
    assert answer["rulings"][0]["verdict"] == "slower"
    assert [row["candidate"] for row in answer["rewritten"]] == ["ch02:copy"]
    text = (chapter / "expect.yaml").read_text()
    assert "direction: slower" in text
    assert f"run {answer['run_id']}" in text


def test_coverage_shows_the_last_verdict_per_device(cli_here: Any, home: Path, root: Path) -> None:
    with Store(home) as store:
        store.save_run(run("faster", 3.0), None)
        store.save_run(run("same", 1.0, environment=H200).model_copy(update={"id": "r_b"}), None)
        store.save_run(run("slower", 0.5).model_copy(update={"id": "r_c"}), None)
    found = json.loads(cli_here("bench", "coverage", "--bench-root", str(root), "--json").stdout)["result"]
    assert found["candidates"][0]["verdicts"] == {"cpu Intel(R) Xeon(R) 8488C": "slower", "NVIDIA H200": "same"}
    assert (found["without_verdict"], found["without_expectation"]) == (1, 0)
    assert found["chapters"] == {"ch02": 2}
    for chapter, chapters in (("ch2", {"ch02": 2}), ("ch99", None)):
        answer = json.loads(
            cli_here("bench", "coverage", "--chapter", chapter, "--bench-root", str(root), "--json").stdout
        )
        assert answer.get("result", {}).get("chapters") == chapters, answer


def test_coverage_shows_verdicts_of_records_where_none_is_stored(cli_here: Any, home: Path, root: Path) -> None:
    records = root.parent / "results"
    records.mkdir()
    old = {"device": "2 cores, loaded", "date": "2026-11-20", "rows": [{"target": "ch02:copy", "candidate": "blocked"}]}
    old["rows"][0]["verdict"] = "slower"  # type: ignore[index]
    both = {"ch02:copy": {"verdict": "faster"}, "ch02:copy_blocked": {"verdict": "same"}}
    new = {"device": "2 cores", "date": "2026-11-21", "candidates": both}
    changed = {"device": "a card", "candidates": both, "candidates changed afterwards": ["ch02:copy_blocked"]}
    for name, body in (("z", old), ("a", new), ("b", {**changed, "device": "NVIDIA H200"}), ("damaged", "{")):
        (records / f"{name}.json").write_text(body if isinstance(body, str) else json.dumps(body))
    with Store(home) as store:
        store.save_run(run("same", 1.0, environment=H200), None)
    answer = json.loads(cli_here("bench", "coverage", "--bench-root", str(root), "--json").stdout)["result"]
    verdicts = {row["candidate"]: row["verdicts"] for row in answer["candidates"]}
    assert verdicts == {
        "ch02:copy": {"2 cores": "faster", "NVIDIA H200": "same"},
        "ch02:copy_blocked": {"2 cores": "same"},
    }
    assert answer["without_verdict"] == 0


@pytest.mark.parametrize(("rate", "flagged"), [(5e11, False), (1.02e12, False), (2e12, True)])
def test_more_than_the_ceiling_asks_for_an_audit(ctx: Context, tmp_path: Path, rate: float, flagged: bool) -> None:
    log = tmp_path / "log.jsonl"
    inputs = [{"dtype": "float32", "shape": [64, 64], "itemsize": 4}]
    log.write_text(json.dumps({"opened": {"layout": {"params": [], "inputs": inputs}}}) + "\n")
    ctx.store.put_measurement("gemm_fp32", "cpu", 1e12, "FLOP/s", {})
    figures = Figures(
        processes=1, rounds=1, calls=1, time_s=1e-3, p50_s=1e-3, p95_s=1e-3, parent_time_s=1e-3, flops_per_s=rate
    )
    given = run("faster", 3.0)
    one = given.comparisons[0].model_copy(update={"optimized": figures, "log_path": str(log)})
    (rows,) = measure.with_peaks(ctx, given.model_copy(update={"comparisons": [one]})).comparisons
    assert rows.peak is not None
    assert math.isclose(rows.peak.share, rate / 1e12)
    assert math.isclose(rows.peak.headroom, 1e12 / rate)
    assert [flag.code for flag in rows.flags] == (["above_ceiling"] if flagged else [])
    assert all("which arithmetic did it use" in flag.message for flag in rows.flags)
    assert rows.sentence.endswith(f"; {100 * rate / 1e12:.0f} % of this machine's best fp32 products")
