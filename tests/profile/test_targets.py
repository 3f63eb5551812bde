"""A benchmark under a profiler by its name: which side ran, where, and that no verdict hears of it."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.audit_log import check_chain
from aisp_mcp.process import isolation
from aisp_mcp.profile import load
from aisp_mcp.profile.recording import target_program
from aisp_mcp.profile.recording.ran import Ran
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run

BASELINE = '''"""Sum rows twice."""
import torch
from aisp_mcp.bench import Benchmark, Work

class Twice(Benchmark):
    def inputs(self, rng):
        return {"a": rng.randn(256, 256)}
    def params(self, rng):
        return {"w": rng.randn(256)}
    def work(self):
        return Work(flops=2 * 256 * 256, bytes=4 * 256 * 256)
    def run(self, a, w):
        return torch.sin(a).sum(dim=1) + (a * w).sum(dim=1)
'''
CANDIDATE = '''"""Static weights scaled once; %s"""
import os, torch
def prepare(params, example):
    return {"w": params["w"] * 1.0}
def run(a, w):
    %s
    return -torch.sin(-a).sum(dim=1) + a @ w
'''
# In a timed worker a profiler must not be there; in a profiled pass this fails, and only there.
WATCHFUL = "assert not torch.autograd._profiler_enabled(), 'somebody watches'"
DIES = "raise ArithmeticError('only in my dreams')"


@pytest.fixture
def bench(tmp_path):
    root = tmp_path / "suite" / "ch01"
    root.mkdir(parents=True)
    (root / "baseline_twice.py").write_text(BASELINE)
    for name, body in (("", "pass"), ("_again", "pass"), ("_watchful", WATCHFUL), ("_dies", DIES)):
        (root / f"optimized_twice{name}.py").write_text(CANDIDATE % (name or "plain", body))
    settings = Settings(home=tmp_path / "home", bench_roots=(root.parent,))
    load_catalog(settings)
    return Context(settings=settings)


def call(ctx, tool, **args):
    answer = execute(tool, args, ctx)
    assert answer.error is None, answer.error
    return answer.model_dump(mode="json", exclude_none=True)["result"]


def refused(ctx, tool, **args):
    answer = execute(tool, args, ctx)
    assert answer.error is not None
    return answer.error.code


@pytest.mark.parametrize(
    ("name", "side", "files"),
    [
        ("ch01:twice", "candidate", ["baseline_twice.py", "optimized_twice.py"]),
        ("ch01:twice", "baseline", ["baseline_twice.py"]),
        ("ch01", "baseline", ["baseline_twice.py"]),
        ("ch01:twice_dies", "candidate", ["baseline_twice.py", "optimized_twice_dies.py"]),
        ("ch01:twice_dies", "baseline", ["baseline_twice.py"]),
    ],
)
def test_a_name_and_a_side_select_one_program(bench, name, side, files):
    subject = target_program.find(bench.settings.bench_roots, name, side)
    assert [path.name for path in subject.files] == files


@pytest.mark.parametrize("tool", ["aisp_profile_torch", "aisp_profile_memory", "aisp_profile_nsys"])
@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"target": "ch01:nothing"}, "UNKNOWN_TARGET"),
        ({"target": "ch01"}, "AMBIGUOUS"),
        ({"target": "ch01:twice", "both": True}, "NO_COMMAND"),
    ],
)
def test_what_cannot_be_profiled_is_refused(bench, tool, args, code):
    given = {name: value for name, value in args.items() if name != "both"}
    if "both" in args:
        given |= {"command": ["true"]} if tool == "aisp_profile_nsys" else {"script": "train.py"}
    assert refused(bench, tool, **given) == code


def _best():
    return isolation.probe().level


def _stacks(bench, **subject):
    """Functions that py-spy found; the flame graph can be drawn."""
    if shutil.which("py-spy") is None and not (Path(sys.executable).parent / "py-spy").exists():
        pytest.skip("py-spy is not installed: pip install py-spy")
    answer = execute("aisp_profile_torch", {**subject, "mode": "stacks", "cost": "never"}, bench)
    if answer.error is not None and "ermission" in answer.error.message:
        pytest.skip(f"py-spy may not trace its own children here: {answer.error.message}")
    assert answer.error is None, answer.error
    path = Path(answer.model_dump()["result"]["trace"])
    flame = call(bench, "aisp_profile_flame", profile=str(path))
    assert flame["stacks"] > 0
    return [frame["name"] for frame in json.loads(path.read_text())["shared"]["frames"]]


def test_host_stacks_of_a_script(bench, tmp_path):
    script = tmp_path / "spins.py"
    script.write_text("""
import time
def spin():
    while time.process_time() < 0.5: pass
spin()
""")
    assert any("spin" in name for name in _stacks(bench, script=str(script)))


def test_a_program_without_a_last_call_has_failed_with_its_last_words(tmp_path):
    (tmp_path / "output.txt").write_text("Traceback\nArithmeticError: only in my dreams\n")
    ran = Ran(target="ch01:twice", side="baseline", size="small", device="cpu", isolation="L1", command=[])
    with pytest.raises(BenchmarkError, match=r"ch01:twice \(baseline\) did not finish.*only in my dreams") as caught:
        target_program._counted(tmp_path, ran)
    assert caught.value.code == "RAISED"
    (tmp_path / "calls.json").write_text('{"calls": 10, "ranks": 1}')
    assert target_program._counted(tmp_path, ran).calls == 10


@pytest.mark.torch
class TestTorch:
    """Real runs on this machine's CPU."""

    pytestmark = pytest.mark.usefixtures("_torch")

    @pytest.fixture
    def _torch(self, monkeypatch):
        pytest.importorskip("torch")
        monkeypatch.setattr(target_program.nvml, "benchmark_device", lambda: "cpu")

    @pytest.mark.parametrize(
        ("side", "own", "other"),
        [("baseline", "mul", "neg"), pytest.param("candidate", "mv", "mul", marks=pytest.mark.slow)],
    )
    def test_only_the_calls_of_the_named_side_are_in_the_trace(self, bench, monkeypatch, side, own, other):
        monkeypatch.setenv("SOME_TOKEN", "tok-5f2a9c77e1")
        answer = call(bench, "aisp_profile_torch", target="ch01:twice", side=side, cost="never")
        counts = {row["name"]: row["count"] for row in answer["operators"]}
        assert counts[f"aten::{own}"] == 10
        assert f"aten::{other}" not in counts
        assert "aten::normal_" not in counts  # inputs were ready before
        ran = answer["ran"]
        assert (ran["side"], ran["calls"], ran["isolation"]) == (side, 10, _best())
        assert len(load.load(answer["trace"]).timeline.steps) == 10
        folder = Path(answer["trace"]).parent
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not any(b"tok-5f2a9c77e1" in path.read_bytes() for path in files)
        assert not (folder / "scratch").exists()

    @pytest.mark.slow
    def test_memory_is_the_sides_own(self, bench):
        answer = call(bench, "aisp_profile_memory", target="ch01:twice", side="baseline", cost="never")
        assert answer["host"]
        assert answer["memory"][0]["peak_bytes"] >= 256 * 256 * 4  # sin(a) alone
        assert len(answer["memory"][0]["growth"]) == 10

    @pytest.mark.slow
    def test_a_side_that_fails_is_an_error_with_its_words(self, bench):
        answer = execute("aisp_profile_torch", {"target": "ch01:twice_dies"}, bench)
        assert answer.error.code == "RAISED"
        assert "only in my dreams" in answer.error.message

    @pytest.mark.slow
    def test_host_stacks_of_a_side(self, bench):
        assert any("play" in name for name in _stacks(bench, target="ch01:twice"))

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_a_profiled_pass_is_no_timed_one(self, bench, tmp_path):
        """A candidate that fails where a profiler watches is judged all the same, and its pass says what happened."""
        answer = call(
            bench, "aisp_run_benchmarks", targets=["ch01:twice_watchful", "ch01:twice_again"], preset="quick",
            profile="deep_dive",
        )  # fmt: skip
        assert {row["target"] for row in answer["rulings"]} == {"ch01:twice_watchful", "ch01:twice_again"}
        assert not {"incorrect", "invalid"} & {row["verdict"] for row in answer["rulings"]}
        profiles = {(row["target"], row["side"], row["profiler"]): row for row in answer["profiles"]["passes"]}
        assert len(profiles) == 9  # one baseline, two candidates, three profilers
        assert "somebody watches" in profiles["ch01:twice_watchful", "candidate", "torch"]["error"]
        made = profiles["ch01:twice_again", "candidate", "torch"]
        assert made["isolation"] == _best()
        folder = Path(answer["profiles"]["folder"])
        assert load.load(folder / made["files"][-1]).source.kind == "kineto"
        [difference] = answer["profiles"]["differences"]  # the other candidate left no trace
        assert difference["target"] == "ch01:twice_again"
        assert not difference["error"]
        page = (folder / difference["file"]).read_text()
        assert "ch01:twice_again: candidate against baseline" in page
        assert "aten::" in page
        self._the_run_was_kept_before(bench, answer["run_id"], folder)

    def _the_run_was_kept_before(self, ctx, run_id, folder):
        """Every comparison's log is closed with the verdict, as its hash says, and older than the first pass."""
        run = ctx.store.run(Run, run_id)
        first = min(path.stat().st_mtime_ns for path in folder.rglob("target.py"))
        for comparison in run.comparisons:
            assert check_chain(Path(comparison.log_path)) == comparison.log_sha256
            assert os.stat(comparison.log_path).st_mtime_ns < first
            assert "profile" not in Path(comparison.log_path).read_text()
        assert (ctx.store.run_dir(run_id) / "run.json").stat().st_mtime_ns < first

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_the_verdict_is_the_same_record_with_and_without(self, bench, monkeypatch):
        """Whatever the passes do, the stored run is what was measured."""
        from aisp_mcp.runs import profiles

        kept = {}
        make = profiles.make

        def spy(ctx, run, *rest):
            kept["before"] = ctx.store.run(Run, run.id).model_dump_json()
            return make(ctx, run, *rest)

        monkeypatch.setattr(profiles, "make", spy)
        answer = call(bench, "aisp_run_benchmarks", targets=["ch01:twice_again"], preset="quick", profile="minimal")
        assert bench.store.run(Run, answer["run_id"]).model_dump_json() == kept["before"]
        assert [row["profiler"] for row in answer["profiles"]["passes"]] == ["torch", "torch"]
        roofline = call(bench, "aisp_profile_roofline", run=answer["run_id"])
        assert [p["kernel"] for p in roofline["points"]] == ["ch01:twice baseline", "ch01:twice_again candidate"]
        assert roofline["points"][0]["intensity"] == pytest.approx(0.5)
        assert roofline["roofs"]
