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
from aisp_mcp.harness.attacks import corpus
from aisp_mcp.harness.attacks.base import Case, Outcome
from aisp_mcp.harness.attacks.evaluation.energy_elsewhere import ISSUE
from aisp_mcp.harness.config import Options
from aisp_mcp.harness.runner import compare
from aisp_mcp.harness.schedule import Role
from aisp_mcp.harness.timing.energy import Window, per_call
from aisp_mcp.model.verdict import Comparison
from aisp_mcp.system import energy

MODEL = Path(__file__).with_name("powercap_model.py")
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
def powercap(tmp_path: Path, suite: Path) -> Iterator[Path]:
    """A counter that counts the processor time of the suite's workers."""
    argv = [sys.executable, str(MODEL), str(tmp_path / "powercap"), str(suite)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        assert model.stdout.readline() == "ready\n"
        yield tmp_path / "powercap"
        model.communicate()


def run(cli: Any, suite: Path, *more: str, timeout: float = 50) -> dict[str, Any]:
    done = cli("bench", "run", "--bench-root", str(suite), "--targets", "ch01", *more, "--json", timeout=timeout)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def test_a_missing_counter_is_a_skip_that_names_it(
    cli: Any, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_POWERCAP", str(tmp_path / "nothing"))
    [skip] = run(cli, suite, "--preset", "quick")["result"]["skipped"]
    assert skip["code"] == "NEEDS"
    assert "energy counter" in skip["missing"]
    assert str(tmp_path / "nothing") in skip["missing"]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_program_of_half_the_work_takes_half_the_energy(
    cli: Any, suite: Path, powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_POWERCAP", str(powercap))
    found = run(cli, suite, "--preset", "quick", "--evidence", timeout=400)["result"]
    [one] = found["evidence"]
    assert one["goal"] == "energy"
    assert 1.3 < one["ratio"] < 3.0
    assert one["disclosed"]["energy"]["counted"] == ["package-0"]
    assert one["baseline"]["metric"]["unit"] == "J"
    assert one["baseline"]["metric"]["value"] > one["optimized"]["metric"]["value"] > 0
    assert "energy per call" in one["sentence"]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", [one for one in corpus.cases() if one.issue == ISSUE], ids=lambda one: one.name)
def test_attacks_on_a_counter_are_stopped(case: Case, suite: Path, powercap: Path) -> None:
    options = Options(corpus.FAST, "default", "cpu", suite, powercap=powercap)
    found = compare(corpus.write(case, suite), options)
    assert isinstance(found, Comparison)
    finding = corpus.judge(case, Outcome(case.name, comparison=found.model_dump(mode="json")))
    assert finding == ("stopped" if case.kind == "attack" else "passed"), found.sentence


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
    windows = {role: Window(calls=100, ran_s=0.5, net_j=100.0, cpu_s=0.1) for role in Role}
    windows[Role.CANDIDATE] = Window(calls=100, ran_s=0.5, net_j=1.0, cpu_s=20.1)
    assert per_call(windows)[Role.CANDIDATE] == pytest.approx(0.01)
    assert per_call(windows, host_w=10.0) == pytest.approx(
        {Role.BASELINE: 1.0, Role.BASELINE_REPEAT: 1.0, Role.CANDIDATE: 0.01 + 10 * 0.2}
    )
