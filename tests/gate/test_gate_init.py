"""A first suite for a repository that has none of ours: asv's, pytest-benchmark's, programs, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

LIBRARY = "def work(n):\n    return sum(range(n))\n"
ASV = """
from thing import work

class Sums:
    params = [[1000, 2000], ["a"]]

    def setup(self, n, name):
        self.n = n

    def time_work(self, n, name):
        assert self.n == n
        work(n)

class Elsewhere:
    def setup(self):
        raise NotImplementedError

    def time_nothing(self):
        pass

def time_module():
    work(10)

def track_size():
    return 3
"""
TESTS = "import thing\n\ndef test_work(benchmark):\n    benchmark(thing.work, 100)\n\ndef test_plain():\n    pass\n"


def repository(folder: Path, **files: str) -> Path:
    """A repository with a package and these files."""
    folder.mkdir()
    written = {"src/thing/__init__.py": LIBRARY, **files}
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def init(cli_here: Any, folder: Path) -> dict[str, Any]:
    """The answer of the command in that folder."""
    done = cli_here("gate", "init", "--json", cwd=folder)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert "INTERNAL" not in done.stdout, done.stderr
    assert (done.returncode == 0) == ("error" not in answer)
    return answer


def test_asvs_suite_becomes_tests_that_run(cli_here: Any, tmp_path: Path) -> None:
    settings = '{\n  // where they are\n  "benchmark_dir": "speed"\n}\n'
    files = {"asv/asv.conf.json": settings, "asv/speed/__init__.py": "", "asv/speed/sums.py": ASV}
    folder = repository(tmp_path / "project", **files)
    result = init(cli_here, folder)["result"]
    assert result["kind"] == "asv"
    assert result["benchmarks"] == ["test_asv[sums:Sums.time_work-0]", "test_asv[sums:time_module-0]"]
    assert [(one["name"], "does not apply" in one["reason"]) for one in result["left_out"]] == [
        ("test_asv[sums:Elsewhere.time_nothing-0]", True)
    ]
    suite = (folder / "aisp_gate/test_asv.py").read_text()
    assert ("time_module" in suite, "time_nothing" in suite, "track_size" in suite) == (True, False, False)
    workflow = (folder / ".github/workflows/performance.yml").read_text()
    assert '--aisp-base "$BASE" --aisp-comment performance.md -c aisp_gate/pytest.ini aisp_gate' in workflow
    assert init(cli_here, folder)["error"]["code"] == "EXISTS"


def test_tests_of_pytest_benchmark_stay_where_they_are(
    cli_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"bench/test_a.py": TESTS, "bench/test_b.py": f"import not_installed\n{TESTS}"}
    folder = repository(tmp_path / "project", **files)
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"), prepend=os.pathsep)
    result = init(cli_here, folder)["result"]
    assert (result["kind"], result["benchmarks"]) == ("pytest", ["bench/test_a.py::test_work"])
    assert result["left_out"][0]["name"] == "bench/test_b.py"
    assert "No module named 'not_installed'" in result["left_out"][0]["reason"]
    assert result["command"].endswith("-o addopts= bench/test_a.py")
    assert [Path(file["path"]).name for file in result["files"]] == ["performance.yml"]
    assert 'pip install "aisp-mcp" pytest && pip install -e .' in Path(result["files"][0]["path"]).read_text()


def test_programs_and_the_import_of_the_package_are_a_suite(cli_here: Any, tmp_path: Path) -> None:
    program = "import thing\n\nif __name__ == '__main__':\n    print(thing.work(10))\n"
    files = {"perf/run_bench.py": program, "perf/bench_other.py": program.replace("10", "missing")}
    folder = repository(tmp_path / "project", **files)
    result = init(cli_here, folder)["result"]
    assert result["kind"] == "programs"
    assert result["benchmarks"] == ["test_program[perf/run_bench.py]", "test_program[-c import thing]"]
    assert "NameError" in result["left_out"][0]["reason"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "aisp_gate/pytest.ini", "aisp_gate"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True)


def test_nothing_that_runs_leaves_nothing_behind(cli_here: Any, tmp_path: Path) -> None:
    folder = repository(tmp_path / "project", **{"src/thing/__init__.py": "import not_installed\n"})
    error = init(cli_here, folder)["error"]
    assert (error["code"], "not_installed" in error["message"]) == ("NOTHING_TO_MEASURE", True)
    assert f"{sys.executable} -m pip install pytest -e ." in error["hint"]
    assert not (folder / "aisp_gate").exists()
    assert not (folder / ".github").exists()


def test_a_repository_without_benchmarks_learns_what_to_write(cli_here: Any, tmp_path: Path) -> None:
    folder = repository(tmp_path / "project")
    (folder / "stats.py").write_text("def work():\n    return 1\n")
    git(folder, "rm", "-rq", "src")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "two")
    error = init(cli_here, folder)["error"]
    assert (error["code"], "NOTSET" in error["message"]) == ("NOTHING_TO_MEASURE", False)
    assert "def test_speed(aisp_bench)" in error["hint"]


def test_pairs_of_ours_need_a_workflow_alone(cli_here: Any, tmp_path: Path) -> None:
    folder = repository(
        tmp_path / "project", **{"benchmarks/ch01/baseline_a.py": "", "benchmarks/ch01/optimized_a.py": ""}
    )
    result = init(cli_here, folder)["result"]
    assert (result["kind"], result["command"]) == ("pairs", "aisp bench gate --base HEAD~1")
    workflow = yaml.safe_load((folder / ".github/workflows/performance.yml").read_text())
    step = next(step for step in workflow["jobs"]["gate"]["steps"] if "aisp bench gate" in step.get("run", ""))
    assert step["run"].splitlines()[0] == 'aisp bench gate --base "$BASE" --json > gate.json || code=$?'
    assert "pull_request.base.sha" in step["env"]["BASE"]
