"""aisp bench commits: two commits of a repository, built once each, and judged on one workload."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.gate.workloads import judge as commits
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

SLOW = "def work(n):\n    return [sum(range(i)) for i in range(n)]\n"
FAST = "def work(n):\n    return [i * (i - 1) // 2 for i in range(n)]\n"
WRONG = "def work(n):\n    return [i * (i + 1) // 2 for i in range(n)]\n"
BROKEN = "def work(n):\n    return undefined\n"
PLAIN = "import thing\n\ndef workload():\n    return thing.work(1500)\n"
DRAWN = """
import random
import thing

def setup():
    return random.randrange(1500, 1600)

def workload(n):
    return n, thing.work(n), random.random()
"""
# Where its user may decide that, the process goes before others on a loaded machine. And where the kernel tells which
# memory is the process's own, a timed call finds what it writes to, such as counts of references, already copied.
ALONE = """
import os
import resource
import time

ROWS = [[n] for n in range(20_000)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def setup():
    time.sleep(0.011)  # so that a round has one call
    return f"called-in-{os.getppid()}"

def workload(mark):
    assert os.geteuid() or os.getpriority(os.PRIO_PROCESS, 0) < 0
    before = faults()
    for row in ROWS:
        pass
    copied = faults() - before
    assert copied < 100 or not os.path.exists(mark) or not os.path.exists("/proc/self/pagemap"), copied
    open(mark, "w").close()
"""
SWE = """
import statistics
import timeit
import thing

def setup():
    global n
    n = 1500

def workload():
    thing.work(n)

runtimes = timeit.repeat(workload, number=2, repeat=10, setup=setup)
print("Mean:", statistics.mean(runtimes))
"""
GSO = """
import argparse
import json
import timeit
import thing

def setup():
    return 1500

def experiment(n):
    return thing.work(n)

def store_result(result, filename):
    with open(filename, "w") as file:
        json.dump(result, file)

def load_result(filename):
    with open(filename) as file:
        return json.load(file)

def check_equivalence(reference, current):
    assert reference == current, "another list"

def run_test(eqcheck: bool = False, reference: bool = False, prefix: str = "") -> float:
    data = setup()
    execution_time, result = timeit.timeit(lambda: experiment(data), number=1)
    if reference:
        store_result(result, f"{prefix}_result.json")
    if eqcheck:
        check_equivalence(load_result(f"{prefix}_result.json"), result)
    return execution_time

timeit.template = '''
def inner(_it, _timer{init}):
    {setup}
    _t0 = _timer()
    for _i in _it:
        retval = {stmt}
    _t1 = _timer()
    return _t1 - _t0, retval
'''

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output_file")
    parser.add_argument("--eqcheck", action="store_true")
    args = parser.parse_args()
    run_test(args.eqcheck)

if __name__ == "__main__":
    main()
"""
Compare = Callable[..., Comparison]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A package whose commits are tagged slow, fast, wrong and broken."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(folder))
    for name, text in (("slow", SLOW), ("fast", FAST), ("wrong", WRONG), ("broken", BROKEN)):
        (folder / "src" / "thing.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", name)
        git(folder, "tag", name)
    return folder


@pytest.fixture
def compare(repo: Path, ctx: Context, tmp_path: Path) -> Compare:
    """Judge two tags of it on the text of a workload, without a build unless one is named."""

    def call(base: str, head: str, workload: str, **options: str) -> Comparison:
        path = tmp_path / "workload.py"
        path.write_text(workload)
        words = {"build": "", "preset": "quick", **options}
        return commits.judge(ctx, commits.CommitsRequest(repo, base, head, path, **words)).comparisons[0]

    return call


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        pytest.param(PLAIN, "the returned value", id="plain"),
        pytest.param(DRAWN, "nothing", id="setup that returns and draws", marks=pytest.mark.slow),
        pytest.param(SWE, "nothing", id="SWE-fficiency", marks=pytest.mark.slow),
        pytest.param(GSO, "its own check_equivalence", id="GSO"),
    ],
)
def test_each_form_of_workload_is_timed_at_both_commits(compare: Compare, text: str, compared: str) -> None:
    comparison = compare("slow", "fast", text)
    assert comparison.ratio is not None
    assert comparison.ratio > 1.5, comparison.sentence
    assert comparison.disclosed["compared"] == compared
    flags = {flag.code for flag in comparison.flags}
    assert ("output_not_compared" in flags) == (compared == "nothing")


@pytest.mark.parametrize("text", [PLAIN, GSO])
def test_a_faster_commit_with_another_answer_is_incorrect(compare: Compare, text: str) -> None:
    comparison = compare("slow", "wrong", text)
    assert comparison.verdict is Verdict.INCORRECT
    assert "wrong" in comparison.sentence


def test_a_commit_at_which_the_workload_fails_is_incorrect_and_named(compare: Compare) -> None:
    comparison = compare("slow", "broken", SWE)
    assert comparison.verdict is Verdict.INCORRECT
    assert "NameError" in comparison.sentence
    with pytest.raises(AispError, match="NameError") as raised:
        compare("broken", "slow", SWE)
    assert raised.value.code == "BASELINE_FAILED"


def test_tests_decide_before_anything_is_timed(compare: Compare) -> None:
    line = "cd src && python -c 'import thing; assert thing.work(3)[2] == 1'"
    comparison = compare("slow", "wrong", SWE, tests=line)
    assert comparison.verdict is Verdict.INCORRECT
    assert comparison.replicates == 0
    with pytest.raises(AispError) as raised:
        compare("wrong", "slow", SWE, tests=line)
    assert raised.value.code == "TESTS_FAILED"


def test_a_commit_is_built_once_for_each_build_command(compare: Compare, repo: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"  # whose environments have no pip, which takes seconds to install
    venv = f'[ "$2" != venv ] || exec {sys.executable} -m venv --without-pip "$3"'
    python.write_text(f'#!/bin/sh\n{venv}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    count = {"build": f"echo x >> {tmp_path}/built", "python": str(python)}
    first = compare("slow", "fast", PLAIN, **count)
    again = compare("slow", "fast", PLAIN, **count)
    assert (tmp_path / "built").read_text() == "x\nx\n"
    kept = [[each["kept"] for each in one.disclosed["environments"]] for one in (first, again)]
    assert kept == [[False, False], [True, True]]
    assert git(repo, "worktree", "list").count("\n") == 0
    pip = "error: subprocess-exited\n  ERROR: no such tool\n  [end of output]\nerror: subprocess-exited-with-error"
    with pytest.raises(AispError, match="no such tool") as raised:
        compare("slow", "fast", PLAIN, build=f"echo '{pip}'; exit 1", python=str(python))
    assert raised.value.code == "BUILD_FAILED"


def test_a_file_that_cannot_be_timed_is_refused_with_the_reason(compare: Compare) -> None:
    for text, reason in (
        ("import thing\n", "neither"),
        (SWE + "\ntimeit.timeit(workload)\n", "2 statements"),
        ("def workload(n):\n    pass\n", "setup"),
    ):
        with pytest.raises(AispError, match=reason):
            compare("slow", "fast", text)


def test_the_run_is_stored_with_its_kind_commits_and_workload(compare: Compare, ctx: Context, repo: Path) -> None:
    compare("fast", "fast", ALONE)
    run = ctx.store.run(Run, "last")
    assert run.kind is RunKind.COMMITS
    assert run.commits == dict.fromkeys(("base", "head"), git(repo, "rev-parse", "fast"))
    assert list(run.sources) == ["sources/workload.py"]
    assert run.comparisons[0].target == "project:workload"
