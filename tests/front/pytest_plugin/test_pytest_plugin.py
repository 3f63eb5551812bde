"""The pytest plugin, in a repository of its own with two commits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import forks
import pytest

from aisp_mcp.front.pytest_plugin import reports
from aisp_mcp.front.pytest_plugin.verdicts import BenchmarkRow
from aisp_mcp.judge.records.verdict import Verdict

ROOT = Path(__file__).parents[3]
FAST = "def work(n):\n    return n * (n - 1) // 2\n"
SLOW = "def work(n):\n    return sum(range(n)) + sum(range(n)) - sum(range(n))\n"
HOOK = "def pytest_benchmark_update_json(config, benchmarks, output_json):\n    pass\n"
STRICT = """
import pytest

class Fixture:
    extra_info, stats = {}, {"min": 1.0}

    def __call__(self, function, *words):
        return function(*words)

def pytest_addoption(parser):
    parser.addoption("--benchmark-disable", action="store_true")

def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Hooks)

class Hooks:
    @staticmethod
    def pytest_benchmark_update_json(config, benchmarks, output_json):
        pass

@pytest.fixture
def benchmark():
    return Fixture()

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    yield
    if not isinstance(item.funcargs.get("benchmark", Fixture()), Fixture):
        raise TypeError("unexpected type for `benchmark`")

def pytest_configure(config):
    config.addinivalue_line("markers", "benchmark: its own")
"""
TESTS = """
import pytest
import thing

@pytest.mark.benchmark(group="sums")
@pytest.mark.parametrize("n", [20000])
def test_work(benchmark, n):
    benchmark.extra_info["n"] = n
    assert benchmark(thing.work, n) == n * (n - 1) // 2
    assert benchmark.stats["min"] > 0

def test_setup(aisp_bench):
    made = []
    aisp_bench.pedantic(list.sort, setup=lambda: (([3, 1, 2] * 100,), {}), rounds=5, iterations=1)

def test_nothing(benchmark):
    pass
"""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A suite whose commit is fast and whose working tree is slow."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "thing.py").write_text(FAST)
    (folder / "test_thing.py").write_text(TESTS)
    (folder / "conftest.py").write_text(
        "def pytest_benchmark_update_json(config, benchmarks, output_json):\n    pass\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = src\naddopts = --benchmark-disable --strict-markers\n")
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "fast")
    return folder


def run(folder: Path, *words: str, path: Sequence[Path] = ()) -> tuple[int, str]:
    """Exit code and output of pytest with the plugin. path: further folders of modules."""
    search = os.pathsep.join(map(str, [*path, ROOT]))
    environment = {**os.environ, "PYTHONPATH": search, "AISP_HOME": str(folder.parent / "home")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loaded by name here, whatever is installed
    plugins = ["-p", "aisp_mcp.front.pytest_plugin.plugin", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *plugins, "-q", "--aisp-preset", "quick", *words]
    done = forks.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=110)
    return done.returncode, done.stdout + done.stderr


def seconds(output: str, test: str) -> list[float]:
    """Per call of a test, at the base and at the head."""
    found = re.search(rf"::{test}  ([\d.]+) (\S+) → ([\d.]+) (\S+)", output)
    assert found, output
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    return [float(number) * units[unit] for number, unit in (found.groups()[:2], found.groups()[2:])]


def test_without_the_option_functions_are_called_once(repository: Path) -> None:
    code, output = run(repository)
    assert code == 0
    assert "3 passed" in output
    assert "verdicts" not in output


def test_the_last_line_says_how_much_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0, 9.0, 9.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    lines: list[str] = []
    reporter = SimpleNamespace(section=lines.append, write=lambda *_, **__: None, write_line=lines.append)
    open_rows = [BenchmarkRow(f"t{number}", Verdict.INCONCLUSIVE, "") for number in range(4)]
    reports.write_summary(reporter, open_rows)
    assert lines[-1] == "judged 0 of 4: load 10 on 2 cores"
    reports.write_summary(reporter, [BenchmarkRow("t", Verdict.SLOWER, "", fails=True)])
    assert lines[-1] == "judged 1 of 1, 1 slower"


def test_a_plugin_that_accepts_only_its_own_fixture_gives_way(repository: Path) -> None:
    """As pytest-benchmark does since 5.0."""
    site = repository / "src"
    (site / "pytest_benchmark").mkdir()
    (site / "pytest_benchmark" / "__init__.py").touch()
    (site / "pytest_benchmark" / "plugin.py").write_text(STRICT)
    (site / "pytest_benchmark-5.3.1.dist-info").mkdir()
    (site / "pytest_benchmark-5.3.1.dist-info" / "METADATA").write_text("Name: pytest-benchmark\nVersion: 5.3.1\n")
    points = "[pytest11]\nbenchmark = pytest_benchmark.plugin\n"
    (site / "pytest_benchmark-5.3.1.dist-info" / "entry_points.txt").write_text(points)
    for words in (["--aisp"], []):  # without --aisp, the suite is that plugin's
        code, output = run(repository, "-p", "benchmark", "-k", "nothing", *words, path=[site])
        assert (code, "1 passed" in output) == (0, True), output


def test_names_that_do_not_exist_are_refused_before_a_test_runs(repository: Path) -> None:
    code, output = run(repository, "--aisp", "--aisp-base", "nowhere")
    assert (code, "NO_SUCH_REVISION" in output, "passed" in output) == (4, True, False)
    code, output = run(repository, "--aisp", "--aisp-baseline", "none")
    assert (code, "NO_BASELINE" in output) == (4, True)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_slowdown_against_a_revision_fails_the_session(repository: Path) -> None:
    (repository / "src" / "thing.py").write_text(SLOW)
    code, output = run(repository, "--aisp", "--aisp-base", "HEAD", "-k", "work")
    assert code == 1, output
    assert "slower" in output
    assert " looks, " in output  # three, or up to five on a noisy machine


@pytest.mark.timeout(120)
def test_what_cannot_be_judged_is_said_and_does_not_fail(repository: Path) -> None:
    """A test that the base lacks is lent to it; the comment gives the resolution."""
    (repository / "new").mkdir()
    (repository / "new" / "test_new.py").write_text(TESTS)
    words = ["--aisp", "--aisp-base", "HEAD", "--aisp-save", "now", "--aisp-comment", "comment.md"]
    code, output = run(repository, *words, "new/test_new.py")
    assert code == 0, output
    comment = (repository / "comment.md").read_text()
    assert comment.startswith("<!-- aisp:pytest -->\n### Performance gate ")
    assert "would have detected a slowdown of" in comment
    assert "the test's own file differs at the base" in comment
    assert "the test did not call the fixture" in comment
    assert "the test did not call the fixture" in output
    assert "of 3" in output.rpartition("judged ")[2]
    assert "test_setup" in (repository / ".aisp" / "now.json").read_text()


@pytest.mark.timeout(240)
def test_what_the_head_no_longer_measures_fails_the_session(repository: Path) -> None:
    """Whether the test is gone, is skipped, or measures nothing any more."""
    measures = "    benchmark(thing.work, 9)\n"
    more = "".join(f"\ndef test_{name}(benchmark):\n{measures}" for name in ("gone", "skipped", "idle"))
    (repository / "test_thing.py").write_text(TESTS + more)
    git(repository, "commit", "-qam", "more")
    more = more.replace("def test_gone(benchmark):", "def test_gone():").replace(measures, "    pass\n")
    (repository / "test_thing.py").write_text(
        TESTS + more.replace("def test_skipped", "@pytest.mark.skip\ndef test_skipped")
    )
    settings = (repository / "pytest.ini").read_text().strip()
    (repository / "pytest.ini").write_text(f"{settings} --aisp-missing warn --aisp-margin 9\n")
    words = ["--aisp", "--aisp-base", "HEAD", "--aisp-comment", "comment.md", "-k", "gone or skipped or idle"]
    code, output = run(repository, *words)
    assert code == 1, output
    assert "--aisp-missing is warn in this tree's settings and fail in the base's, which counts" in output
    assert "--aisp-margin is 9.0 in" in output
    assert "judged 0 of 3, 3 missing" in output
    assert "did not pass" in (repository / "comment.md").read_text()


@pytest.mark.timeout(240)
def test_a_package_beside_its_tests_is_found_at_both_revisions(tmp_path: Path) -> None:
    """`python -m pytest` has the working folder on its path, without any setting."""
    folder = tmp_path / "flat"
    (folder / "thing").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "thing" / "__init__.py").write_text(SLOW)
    test = "\ndef test_work(benchmark):\n    benchmark(thing.work, 100000)\n"
    (folder / "tests" / "test_thing.py").write_text("import thing\n" + test + test.replace("work(b", "gone(b"))
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "slow")
    (folder / "thing" / "__init__.py").write_text(FAST)
    (folder / "tests" / "test_thing.py").write_text("import thing\n" + test)
    (folder / "tests" / "conftest.py").write_text("import os\nassert 'aisp-pytest-' not in os.getcwd()\n")
    code, output = run(folder, "--aisp", "--aisp-base", "HEAD", "--aisp-missing", "warn")
    assert code == 0, output
    assert "judged 1 of 2, 0 slower, 1 missing" in output
    base, head = seconds(output, "test_work")
    assert head < base / 2, output


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_work_that_moves_to_a_setup_counts(repository: Path) -> None:
    (repository / "src" / "thing.py").write_text(SLOW)
    measured = "assert benchmark(thing.work, n) == n * (n - 1) // 2"
    moved = "benchmark.pedantic(lambda: None, setup=lambda: thing.work(n) and None)"
    (repository / "test_thing.py").write_text(TESTS.replace(measured, moved))
    code, output = run(repository, "--aisp", "--aisp-base", "HEAD", "-k", "test_work")
    assert (code, " looks, " in output) == (1, True), output


OWN = """
import pytest
import thing

CALLS = []

def make(seed, n):
    CALLS.append(seed)
    return seed % n

def check(n, answer):
    return answer == n * (n - 1) // 2 + EXTRA

@pytest.mark.aisp(make=make, n=20000, check=check)
def test_made(aisp_bench):
    aisp_bench(thing.work)
    assert len(set(CALLS)) == len(CALLS)

@pytest.mark.aisp(rtol=1e-6)
def test_close(aisp_bench):
    aisp_bench(thing.mean, 3)
"""


def test_a_test_brings_its_own_generator_checker_and_tolerance(repository: Path) -> None:
    (repository / "test_thing.py").write_text(OWN.replace("EXTRA", "0"))
    source = repository / "src" / "thing.py"
    long = SLOW + "def mean(n):\n    return work(20000) * 0 + n / 3{}\n"  # enough for a round of few calls
    source.write_text(long.format(""))
    git(repository, "commit", "-qam", "with a generator")
    source.write_text(long.format(" + 1e-8"))
    code, output = run(repository, "--aisp", "--aisp-base", "HEAD")
    assert seconds(output, "test_made")
    assert "the result differs" not in output, output
    (repository / "test_thing.py").write_text(OWN.replace("EXTRA", "1"))
    code, output = run(repository)
    assert code == 1
    assert "check refuses the answer" in output
    (repository / "test_thing.py").write_text(OWN.replace("n=20000", "size=20000"))
    code, output = run(repository)
    assert code != 0
    assert "'size'" in output
