"""The gate between two runs: known answers, a false-alarm rate, and that lost data never passes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.runs.changes import triage as run_triage
from aisp_mcp.runs.changes.changes import compare_runs
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.run import Failure, Run

QUIET = 0.002


def result(
    name: str = "ch01:a", ratio: float | None = 2.0, spread: float = QUIET, verdict: str = "faster", **more: object
) -> Comparison:
    """A stored comparison; spread: half-width of interval and noise floor, relative."""
    fields: dict[str, object] = {"candidate": "", "sentence": "s", "isolation": "L1", "replicates": 5}
    if ratio is not None:
        interval = Interval(low=ratio * math.exp(-spread), high=ratio * math.exp(spread))
        fields |= {"ratio": ratio, "interval": interval, "noise_floor": spread}
    return Comparison.model_validate({"target": name, "verdict": verdict, **fields, **more})


def run(*comparisons: Comparison, run_id: str = "r_a", **more: object) -> Run:
    fields = {"created_at": 0.0, "preset": "default", "profile": "portable", "environment": {"host": {"cpu": "x"}}}
    return Run.model_validate({"id": run_id, **fields, "comparisons": list(comparisons), **more})


@pytest.mark.parametrize(
    ("before", "after", "spread", "word"),
    [
        (2.0, 2.4, QUIET, "faster"), (2.0, 1.6, QUIET, "slower"), (2.4, 2.0, QUIET, "slower"),
        (1.0, 1.05, QUIET, "faster"), (1.0, 0.95, QUIET, "slower"), (1.0, 1.02, QUIET, "faster"),
        (1.0, 0.98, QUIET, "slower"), (1.0, 1.0, QUIET, "same"), (1.0, 1.005, QUIET, "same"),
        (1.0, 1.0, 0.2, "inconclusive"), (1.0, 1.2, 0.2, "inconclusive"), (1.0, 0.8, 0.2, "inconclusive"),
        (1.0, 1.0, 0.0, "same"), (1.0, 0.9, 0.0, "slower"), (1.0, 1.1, 0.0, "faster"),
        (None, 1.0, QUIET, "inconclusive"), (1.0, None, QUIET, "inconclusive"),
        (1.0, math.nan, QUIET, "inconclusive"), (1.0, math.inf, QUIET, "inconclusive"),
        (1.0, 0.0, QUIET, "inconclusive"),
    ],
)  # fmt: skip
def test_known_answers(before: float | None, after: float | None, spread: float, word: str) -> None:
    (change,), missing = compare_runs(run(result(ratio=before, spread=spread)), run(result(ratio=after, spread=spread)))
    assert (change.verdict.value, missing) == (word, [])
    assert change.sentence.startswith(f"{word}: ")
    passed = run_triage.compared(
        run(result(ratio=before, spread=spread)), run(result(ratio=after, spread=spread))
    ).passed
    assert passed is (word in ("faster", "same")), "what could not be judged does not pass"


def test_swapping_the_runs_mirrors_the_answer() -> None:
    a, b = run(result(ratio=2.0)), run(result(ratio=2.6))
    (there,), _ = compare_runs(a, b)
    (back,), _ = compare_runs(b, a)
    assert there.change is not None
    assert back.change is not None
    assert there.change * back.change == pytest.approx(1.0)
    assert there.p_value == pytest.approx(back.p_value)


def test_welch_agrees_with_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats")
    draw = random.Random(5)
    samples = [[draw.gauss(mean, sd) for _ in range(n)] for mean, sd, n in ((0.1, 0.02, 5), (0.15, 0.05, 9))]
    runs = []
    for values in samples:
        estimate = stats.t_interval(values)
        interval = Interval(low=math.exp(estimate.low), high=math.exp(estimate.high))
        more = {"ratio": math.exp(estimate.mean), "interval": interval, "noise_floor": 0.01, "replicates": len(values)}
        runs.append(run(result().model_copy(update=more)))
    (change,), _ = compare_runs(*runs)
    expected = scipy.ttest_ind(samples[1], samples[0], equal_var=False)
    assert change.p_value == pytest.approx(expected.pvalue, rel=1e-9)


@pytest.mark.parametrize("word", ["incorrect", "invalid"])
def test_what_broke_is_never_compared_by_its_time(word: str) -> None:
    broken = result(ratio=9.0, verdict=word)
    after = run_triage.compared(run(result()), run(broken))
    assert (after.changes[0].verdict.value, after.changes[0].change, after.passed) == (word, None, False)
    healed = run_triage.compared(run(broken), run(result()))
    assert (healed.changes[0].verdict.value, healed.outcome.value) == ("inconclusive", "could_not_judge")


def test_lost_benchmarks_do_not_pass_and_say_why() -> None:
    before = run(result("ch01:a"), result("ch01:b"), result("ch01:c", candidate="wide"))
    after = run(
        result("ch01:a"),
        skipped=[Skip(target="ch01:b", code="NO_GPU", missing="1 GPU")],
        failed=[Failure(target="ch01:c_wide", code="RAISED", message="boom")],
    )
    answer = run_triage.compared(before, after)
    assert not answer.passed
    assert [item.reason for item in answer.missing] == ["skipped: 1 GPU", "failed: RAISED, boom"]
    assert run_triage.compared(run(result("ch01:a")), before).passed, "new benchmarks are no regression"


def test_a_lone_weak_signal_among_many_is_not_called() -> None:
    alone = compare_runs(run(result(spread=0.01)), run(result(ratio=2.08, spread=0.01)))[0][0]
    many = [result(f"ch01:{n}", spread=0.01) for n in range(400)]
    later = [one if n else one.model_copy(update={"ratio": 2.08}) for n, one in enumerate(many)]
    weak = compare_runs(run(*many), run(*later))[0][0]
    assert alone.p_value is not None
    assert weak.p_adjusted is not None
    assert weak.p_adjusted > alone.p_value


def test_identical_programs_rarely_differ() -> None:
    draw, calls, alarms = random.Random(7), 600, 0
    for _ in range(calls):
        runs = []
        for _side in range(2):
            ratios = [draw.gauss(0.0, 0.01) for _ in range(5)]
            noise = stats.noise_floor([draw.gauss(0.0, 0.01 / stats.NOISE_TO_RATIO) for _ in range(5)])
            e = stats.t_interval(ratios)
            interval = Interval(low=math.exp(e.low), high=math.exp(e.high))
            more = {"ratio": math.exp(e.mean), "interval": interval, "noise_floor": math.expm1(noise.half_width)}
            runs.append(run(result().model_copy(update=more)))
        alarms += compare_runs(*runs)[0][0].verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert alarms / calls <= 0.01


def test_environments_are_compared_but_not_what_happened_during() -> None:
    a = run(result(), environment={"host": {"cpu": "x"}, "during": {"seconds": 1}})
    b = run(result(), environment={"host": {"cpu": "y"}, "during": {"seconds": 2}})
    assert run_triage.compared(a, b).environment_difference == ["host.cpu: x → y"]


def test_triage_names_the_worst_first_and_what_to_do() -> None:
    noisy = result("ch01:noisy", verdict="inconclusive", spread=0.3)
    flag = Flag(code="stale_cache", severity="fatal", message="returned an old result")
    cheat = result("ch01:cheat", verdict="invalid", flags=[flag])
    after = run(noisy, cheat, result("ch01:slow", ratio=1.0), run_id="r_b")
    answer = run_triage.triage(after, run(result("ch01:slow"), result("ch01:gone")))
    assert [change.target for change in answer.regressed] == ["ch01:slow"]
    assert (answer.suspect[0].code, answer.suspect[0].target) == ("stale_cache", "ch01:cheat")
    assert any(s.code == "noisy" and s.target == "ch01:noisy" for s in answer.suspect)
    calls = [(call.tool, call.args.get("targets")) for call in answer.run_next]
    assert calls == [
        ("aisp_benchmark_export", None), ("aisp_run_benchmarks", ["ch01:slow"]),
        ("aisp_run_benchmarks", ["ch01:noisy"]), ("aisp_run_benchmarks", ["ch01:gone"]),
    ]  # fmt: skip
    assert run_triage.triage(run(result()), None).run_next == []


def test_the_command_line_stops_a_pipeline(cli_here: Any, home: Path) -> None:
    with Store(home) as store:
        store.save_run(run(result(), run_id="r_a"), None)
        store.save_run(run(result(ratio=1.5), run_id="r_b"), None)
    slower = cli_here("bench", "compare-runs", "r_a", "r_b", "--json")
    faster = cli_here("bench", "compare-runs", "r_b", "r_a", "--json")
    assert (slower.returncode, faster.returncode) == (3, 0), slower.stderr
    assert json.loads(slower.stdout)["result"]["counts"] == {"slower": 1}
    same = cli_here("bench", "compare-runs", "r_a", "r_a", "--json")
    assert json.loads(same.stdout)["error"]["code"] == "SAME_RUN"
    triage = cli_here("bench", "triage", "r_b", "--against", "r_a", "--json")
    assert json.loads(triage.stdout)["result"]["regressed"][0]["target"] == "ch01:a"


def test_noise_is_named_only_where_it_hides_something() -> None:
    """5 % of noise hide nothing of a gain of 9x."""
    clear = result(ratio=9.0).model_copy(update={"noise_floor": 0.06})
    assert run_triage.triage(run(clear), None).suspect == []
    small = result(ratio=1.05).model_copy(update={"noise_floor": 0.06})
    (suspicion,) = run_triage.triage(run(small), None).suspect
    assert suspicion.code == "noisy"
    assert suspicion.message.endswith("by 6 %: no difference below 12 % shows")


@pytest.mark.parametrize(
    ("tool", "params", "kind", "expected"),
    [
        (
            "aisp_verify_candidate",
            {"target": "a.py:f", "candidate": "a.py:g", "inputs": "x=randn(8)", "format": None, "preset": "quick"},
            "functions",
            "aisp bench verify a.py:f a.py:g --inputs 'x=randn(8)' --preset release",
        ),
        ("aisp_verify_candidate", {"target": "a.py", "candidate": "text\n" * 999}, "verify", None),
        ("aisp_optimize_submit", {"candidate": "mine.py"}, "optimize", "aisp optimize finish"),
    ],
)
def test_what_is_no_target_of_a_suite_is_measured_again_by_its_own_call(
    cli_here: Any, home: Path, tool: str, params: dict[str, Any], kind: str, expected: str | None
) -> None:
    noisy, job_id = result("a:f", verdict="inconclusive", spread=0.3), f"j_{'x' * 22}"
    facts = {"timeout_s": 1, "created_at": 1.0, "run_dir": str(home / "runs" / job_id), "state": JobState.QUEUED}
    with Store(home) as store:
        store.insert_job(Job(id=job_id, tool=tool, params=params, **facts), python="", cwd="", env={})
        store.save_run(run(noisy, run_id=job_id, kind=kind), job_id)
    shown = cli_here("bench", "triage", job_id).stdout
    assert "aisp bench run" not in shown
    assert (expected in " ".join(shown.split())) if expected else "run next" not in shown
