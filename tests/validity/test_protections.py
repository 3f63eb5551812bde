"""Each protection of the judge is there for something: turned off, the attack it is meant for gets through.

The same attack is stopped while it is on, so every test here can fail in both directions. Warm-up rounds are verified
too, but for the unusual inputs among them: their times are never counted, so a wrong answer there gains nothing.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge import comparison
from aisp_mcp.judge.options import ALL, Options
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.records import Skip
from aisp_mcp.process import isolation
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import TABLES, Settings
from aisp_mcp.validity import corpus, issues
from aisp_mcp.validity.corpus import CERTAIN_GAIN
from aisp_mcp.validity.issues import Case, Outcome

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(300)]

SHORT = Preset("short", 1, 0.004, 3)  # each order of the programs once: some attacks gain only after certain others
LONGER = Preset("longer", 1, 0.03, 5)
SECRET = "AISP_TEST_SECRET"
ROOT = Path(__file__).resolve().parents[2]
LOOP, WORKER, MATMUL_RELU = issues.snippet("loop"), issues.snippet("worker"), issues.baseline("matmul_relu")

# Known by all values, so that it is right on any inputs, and gains where they come again.
CACHE = """
import torch

known = {}

def run(x, w):
    key = x.numpy().tobytes()
    if key not in known:
        known[key] = torch.relu(x @ w)
    return known[key]
"""

# Honest in rounds of one call, in the two that warm up, and on inputs that no plain draw has: one of them is a hidden
# check.
STALE_LATER = (
    LOOP
    + """
rounds, usual, last = [0], [False], [None]

def run(x, w):
    found = loop()
    if found["call"] == 0:
        rounds[0] += found["count"] > 1
        few, most = x[0, :64], float(x.abs().max())
        usual[0] = 0.1 < most < 50 and bool((few != few.round()).all()) and float(few.std()) > 0
    if rounds[0] < 3 or not usual[0]:
        last[0] = torch.relu(x @ w)
    return last[0]
"""
)

# Nothing is written once the same input was answered in the same place. Answers go to
# the places that the verifier reads, also in rounds that would leave them in memory of the worker's own.
NOTHING_WRITTEN = (
    WORKER
    + """
written = {}
spare_copies(False)

def run(x, w):
    call = loop()["call"]
    key = x.numpy().tobytes()
    if written.get(call) != key:
        written[call] = key
        worker.outputs[call][0].copy_(torch.relu(x @ w))
"""
)

# A thread answers what is there before the clock starts; it rests while the round runs.
WORKS_BEFORE_THE_ROUND = (
    WORKER
    + """
working, ready = [False], {}

def serve():
    w = worker.arena.params()["w"]
    while True:
        for call, inputs in enumerate(() if working[0] else worker.inputs):
            seen = inputs["x"].numpy().tobytes()
            if ready.get(call, (b"", None))[0] != seen:
                ready[call] = seen, torch.relu(inputs["x"] @ w)
        time.sleep(0.001)

threading.Thread(target=serve, daemon=True).start()

def run(x, w):
    found = loop()
    working[0] = found["call"] + 1 < found["count"]
    seen, answer = ready.get(found["call"], (b"", None))
    return answer if seen == x.numpy().tobytes() else torch.relu(x @ w)
"""
)

REPORTS_ENVIRONMENT = f"""
import os

def run(x, w):
    raise RuntimeError(os.environ.get("{SECRET}", "nothing to be seen"))
"""

SOFTMAX = '''"""Softmax of each row, step by step in double precision."""

import torch

from aisp_mcp.bench import Benchmark


class Small(Benchmark):
    def inputs(self, rng):
        return {"x": rng.randn(256, 4096)}

    def run(self, x):
        x = x.double()
        y = torch.exp(x - x.amax(1, keepdim=True))
        return (y / y.sum(1, keepdim=True)).float()
'''
# The same where no element is large, in single precision.
OVERFLOWS = "def run(x):\n    y = x.exp()\n    return y.div_(y.sum(1, keepdim=True))\n"

LESS_PRECISE_TYPE = "def run(x):\n    return x > 0\n"
MASK = issues.baseline("relu").replace("return torch.relu(x)", "return (x > 0).long()")


def test_no_tool_and_no_setting_turns_a_protection_off() -> None:
    load_catalog(dataclasses.replace(Settings.from_env({}), tool_modules=""))
    jobs = [tool for tool in registry.tools() if tool.job]  # whatever measures is one
    names = {name for tool in jobs for name in tool.params.model_fields}
    settings = {field.name for table in TABLES for field in dataclasses.fields(table)}
    protections = {field.name for field in dataclasses.fields(ALL)}
    assert not (names | settings) & (protections | {"protections"})


def own(name: str, candidate: str, baseline: str = MATMUL_RELU) -> Case:
    return Case(name, "attack", baseline, candidate.lstrip("\n"))


def compared(case: Case, folder: Path, off: str = "", preset: Preset = SHORT, level: str = "auto", **also: bool) -> Any:
    """The comparison as data, with one protection off."""
    changes = also | ({off: False} if off else {})
    options = Options(preset, "default", "cpu", folder, level, protections=dataclasses.replace(ALL, **changes))
    result = comparison.compare(corpus.write(case, folder), options)
    assert not isinstance(result, Skip)
    return result.model_dump(mode="json")


def finding(case: Case, comparison: dict[str, Any]) -> str:
    return corpus.judge(case, Outcome(case.name, comparison=comparison))


def gains(case: Case, comparison: dict[str, Any]) -> bool:
    """The reported ratio beats the truth, and the run is not thrown out."""
    return unnoticed(case, comparison) and corpus.row(case, Outcome(case.name, comparison=comparison))["gained"]


def unnoticed(_: Case, comparison: dict[str, Any]) -> bool:
    """Neither invalid nor incorrect, though the contract was broken."""
    return comparison["verdict"] not in ("invalid", "incorrect")


def gains_beyond_noise(case: Case, comparison: dict[str, Any]) -> bool:
    """More than the parent's clock can be wrong by: it never takes more than half of a round for the loop's cost."""
    return gains(case, comparison) and comparison["ratio"] > 10


@pytest.mark.parametrize(
    ("off", "case", "succeeds", "also"),
    [
        ("fresh_inputs", own("cache_by_all_elements", CACHE), gains, {}),
        ("poison", own("nothing_written", NOTHING_WRITTEN), gains, {"fresh_inputs": False, "isolated_calls": False}),
        ("parent_clock", corpus.named("durations_rewritten"), gains_beyond_noise, {"isolated_calls": False}),
        ("timed_verification", own("stale_later", STALE_LATER), gains, {"isolated_calls": False}),
        ("freeze", own("works_before_the_round", WORKS_BEFORE_THE_ROUND), gains, {"isolated_calls": False}),
        ("outside", corpus.named("written_beyond_the_output"), unnoticed, {}),
        ("adversarial", own("softmax_without_its_maximum", OVERFLOWS, SOFTMAX), gains, {}),
        ("contract", own("less_precise_type", LESS_PRECISE_TYPE, MASK), unnoticed, {}),
        ("outside", corpus.named("input_as_scratch"), unnoticed, {}),
        ("values", corpus.named("all_zeros"), gains, {}),
        ("isolated_calls", corpus.named("calls_of_a_round_batched"), gains, {}),
        ("isolated_calls", corpus.named("short_calls_batched"), gains, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_its_protection_an_attack_gets_through(
    tmp_path: Path, off: str, case: Case, succeeds: Callable[[Case, dict[str, Any]], bool], also: dict[str, bool]
) -> None:
    held, open_ = tmp_path / "held", tmp_path / "open"
    held.mkdir()
    open_.mkdir()
    preset = LONGER if off in ("timed_verification", "isolated_calls") else SHORT
    stopped = compared(case, held, preset=preset, **also)
    assert finding(case, stopped) == "stopped", stopped["sentence"]
    assert not succeeds(case, stopped), stopped["sentence"]
    through = compared(case, open_, off, preset, **also)
    assert succeeds(case, through), (through["sentence"], through["clocks"], through["flags"])


@pytest.mark.skipif(isolation.probe().level not in ("L2", "L3"), reason="needs isolation level L2")
@pytest.mark.parametrize(
    "name",
    [
        "stale_in_long_rounds",
        "second_rank_keeps_its_share",
        "collective_replaced",
        "next_call_started_in_this_one",
        "thread_works_between_rounds",
        "durations_rewritten",
        "loop_cost_stolen",
        "calls_of_a_round_batched",
        "kernel_copies_after_the_answer",
        "resumed_by_a_timer",
        "memory_of_other_processes",
        "baseline_file_rewritten",
    ],
)
def test_with_all_protections_off_attacks_on_the_loop_gain(name: str) -> None:
    """At the lowest isolation, inside a sandbox that guards the machine; with them on, test_attacks.py stops each."""
    tool = [sys.executable, str(ROOT / "tools" / "undefended.py"), name, "--harness", "own word"]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=250, check=True)
    assert (json.loads(done.stdout.splitlines()[-1])["gains"]["own word"] or 0.0) > CERTAIN_GAIN


def test_without_a_clean_environment_a_worker_reads_the_users_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "the password")
    case = own("reports_environment", REPORTS_ENVIRONMENT)
    assert "nothing to be seen" in compared(case, tmp_path)["sentence"]
    assert "the password" in compared(case, tmp_path, "clean_environment")["sentence"]


def test_where_memory_runs_out_a_worker_goes_first(tmp_path: Path) -> None:
    """Memory in files without a name is counted by no limit of a process: the kernel must not choose the judge."""
    source = "def run(x, w):\n    raise RuntimeError(open('/proc/self/oom_score_adj').read().strip())\n"
    assert "1000" in compared(own("tells_its_rank", source), tmp_path)["sentence"]


@pytest.mark.skipif(isolation.probe().level not in ("L2", "L3"), reason="needs isolation level L2")
def test_without_namespaces_a_candidate_rewrites_the_baseline(tmp_path: Path) -> None:
    case = corpus.named("baseline_file_rewritten")
    two = Preset("two", 2, 0.004, 1)
    text = case.baseline
    held = compared(case, tmp_path, preset=two)
    assert finding(case, held) == "stopped", held["sentence"]
    assert (tmp_path / f"baseline_{case.name}.py").read_text("utf-8") == text
    through = compared(case, tmp_path, preset=two, level="L1")
    assert gains(case, through), through["sentence"]


_CUT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.judge import comparison
from aisp_mcp.validity import corpus
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.presets import Preset

case, folder = corpus.named("arena_cut_off"), Path(sys.argv[1])
guard = replace(ALL, sealed=sys.argv[2] == "on", contract=False)  # with it, the parent would read the outputs
options = Options(Preset("short", 1, 0.004, 1), "default", "cpu", folder, protections=guard)
print(json.dumps(comparison.compare(corpus.write(case, folder), options).verdict))
"""


def test_without_seals_a_candidate_brings_down_the_judge(tmp_path: Path) -> None:
    """The kernel kills a process that reads truncated memory: here the verifier, so there is no verdict."""

    def verdict(sealed: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-c", _CUT, str(tmp_path), sealed]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)

    held = verdict("on")
    assert held.returncode == 0, held.stderr
    assert json.loads(held.stdout) in ("invalid", "incorrect")
    assert verdict("off").returncode != 0
