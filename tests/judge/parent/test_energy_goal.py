"""Goal energy through the command line: a skip without a counter, and a verdict beside one that counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.timing.energy import Window, per_call
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict import conclude
from aisp_mcp.process import isolation
from aisp_mcp.suites import selection
from aisp_mcp.system.gpu import energy
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case, Outcome

MODEL = Path(__file__).parents[1] / "powercap_model.py"
ENERGY_ELSEWHERE = [case for case in corpus.cases() if case.issue == 104]
BASELINE = '''
"""Two products, one of them for nothing."""
from aisp_mcp.bench import Benchmark
class Products(Benchmark):
    goal = "energy"
    def inputs(self, rng):
        return {"a": rng.randn(256, 256), "b": rng.randn(256, 256)}
    def run(self, a, b):
        c = a @ b
        return (a @ b + c) / 2
'''
CANDIDATE = '"""One product."""\ndef run(a, b):\n    return a @ b\n'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with one pair."""
    chapter = tmp_path / "suite" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "baseline_products.py").write_text(BASELINE)
    (chapter / "optimized_products.py").write_text(CANDIDATE)
    return chapter.parent


@pytest.fixture
def powercap(tmp_path: Path, suite: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A counter that counts the processor time of the suite's workers, at a price that a test may give."""
    if isolation.probe().level not in ("L2", "L3"):
        pytest.skip("workers are known by their own mounts, which isolation level L2 gives them")
    argv = [sys.executable, str(MODEL), str(tmp_path / "powercap"), str(suite), *getattr(request, "param", [])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        assert model.stdout.readline() == "ready\n"
        yield tmp_path / "powercap"
        model.communicate()


def run(cli_here: Any, suite: Path, *more: str, timeout: float = 50) -> dict[str, Any]:
    done = cli_here("bench", "run", "--bench-root", str(suite), "--targets", "ch01", *more, "--json", timeout=timeout)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def test_a_missing_counter_is_a_skip_that_names_it(
    cli_here: Any, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_POWERCAP", str(tmp_path / "nothing"))
    [skip] = run(cli_here, suite, "--preset", "quick")["result"]["skipped"]
    assert skip["code"] == "NEEDS"
    assert "energy counter" in skip["missing"]
    assert str(tmp_path / "nothing") in skip["missing"]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_program_of_half_the_work_takes_half_the_energy(
    cli: Any, suite: Path, powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_POWERCAP", str(powercap))
    result = run(cli, suite, "--preset", "quick", "--evidence", timeout=400)["result"]
    [one] = result["evidence"]
    assert one["goal"] == "energy"
    assert 1.3 < one["ratio"] < 3.0
    assert one["disclosed"]["energy"]["counted"] == ["package-0"]
    assert one["baseline"]["metric"]["unit"] == "J"
    assert one["baseline"]["metric"]["value"] > one["optimized"]["metric"]["value"] > 0
    assert "energy per call" in one["sentence"]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("powercap", [["-0.4"]], indirect=True)
def test_energy_below_that_of_the_idle_device_is_not_judged(suite: Path, powercap: Path) -> None:
    options = Options(corpus.FAST, "default", "cpu", suite, powercap=powercap)
    (pair,) = selection.pairs([suite], ["ch01"])[0]
    comparison = compare(pair, options)
    assert isinstance(comparison, Comparison)
    assert comparison.verdict == "inconclusive"
    assert comparison.ratio is None
    [flag] = [flag for flag in comparison.flags if flag.code == "energy_below_idle"]
    assert comparison.sentence.startswith("inconclusive: energy above idle of the baseline in 1 and of the candidate")
    assert [len(watts) for watts in flag.evidence["idle_w"]] == [2]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", ENERGY_ELSEWHERE, ids=lambda case: case.name)
def test_attacks_on_a_counter_are_stopped(case: Case, suite: Path, powercap: Path) -> None:
    options = Options(corpus.FAST, "default", "cpu", suite, powercap=powercap)
    comparison = compare(corpus.write(case, suite), options)
    assert isinstance(comparison, Comparison)
    finding = corpus.judge(case, Outcome(case.name, comparison=comparison.model_dump(mode="json")))
    assert finding == ("stopped" if case.kind == "attack" else "passed"), comparison.sentence


def zone(folder: Path, number: str, name: str, value: int, most: int = 1000) -> Path:
    place = folder / f"intel-rapl:{number}"
    place.mkdir(parents=True)
    for file, text in (("name", name), ("energy_uj", value), ("max_energy_range_uj", most)):
        (place / file).write_text(f"{text}\n")
    return place / "energy_uj"


def test_packages_and_memory_are_added_and_unwrapped(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "0", "package-0", 900), zone(tmp_path, "1", "package-1", 10)
    memory, _ = zone(tmp_path, "0:1", "dram", 5), zone(tmp_path, "0:0", "core", 500)
    counter = energy.PackageCounter(tmp_path)
    assert sorted(counter.domains) == ["dram", "package-0", "package-1"]
    before = counter.joules()
    first.write_text("100\n")
    second.write_text("40\n")
    memory.write_text("6\n")
    assert counter.joules() - before == pytest.approx((200 + 30 + 1) / 1e6)


def test_a_counter_that_stands_still_is_no_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(tmp_path, "0", "package-0", 1)
    monkeypatch.setattr(energy, "STEP_S", 0.0)
    with pytest.raises(Unavailable, match="does not move"):
        energy.PackageCounter(tmp_path).step()


def test_work_moved_to_the_host_of_a_gpu_is_paid_for() -> None:
    windows = {role: Window(calls=100, ran_s=0.5, joules=160.0, between_s=1.0, cpu_s=0.1) for role in Role}
    windows[Role.CANDIDATE] = Window(calls=100, ran_s=0.5, joules=61.0, between_s=1.0, cpu_s=20.1)
    assert per_call(windows, idle_w=60.0)[Role.CANDIDATE] == pytest.approx(0.01)
    assert per_call(windows, idle_w=60.0, host_w=10.0) == pytest.approx(
        {Role.BASELINE: 1.0, Role.BASELINE_REPEAT: 1.0, Role.CANDIDATE: 0.01 + 10 * 0.2}
    )


@pytest.mark.parametrize(
    ("joules", "sides"),
    [
        ((1.0, 1.1, 0.5), None),
        ((-0.1, 1.1, 0.5), "of the baseline in 1 of 1"),
        ((1.0, 1.1, 0.0), "of the candidate in 1 of 1"),
        ((1.0, -1.1, -0.5), "of the baseline in 1 and of the candidate in 1 of 1"),
    ],
)
def test_a_side_that_took_less_than_the_idle_device_has_no_ratio(
    joules: tuple[float, float, float], sides: str | None
) -> None:
    replicate = Replicate(0, metric=dict(zip(Role, joules, strict=True)), idle_w=(190.0, 110.0))
    figures = Figures(processes=1, rounds=6, calls=6, time_s=0.1, p50_s=0.1, p95_s=0.1, parent_time_s=0.1)
    timed = Comparison(
        target="ch17:energy", candidate="", verdict=Verdict.INCONCLUSIVE, sentence="", goal="energy",
        isolation="L2", replicates=1, baseline=figures, optimized=figures,
    )  # fmt: skip
    comparison = conclude.judged_by_metric(timed, [replicate], None, 0.95)
    codes = [flag.code for flag in comparison.flags]
    if sides is None:
        assert codes == []
        assert comparison.ratio == pytest.approx((1.0 * 1.1) ** 0.5 / 0.5)
    else:
        assert codes == ["energy_below_idle"]
        assert comparison.verdict is Verdict.INCONCLUSIVE
        assert comparison.ratio is None
        assert f"energy above idle {sides} replicates is not positive" in comparison.sentence
        assert comparison.flags[0].evidence == {"idle_w": [[190.0, 110.0]]}
