"""Write a first suite, run each of its benchmarks once, and leave out those that do not run."""

from __future__ import annotations

import pprint
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from aisp_mcp.errors import BenchmarkError, NotFound, Refused
from aisp_mcp.gate.setup.records import GateInit, LeftOut
from aisp_mcp.gate.setup.survey import Survey, benchmark_tests, survey
from aisp_mcp.process import python
from aisp_mcp.process.run import run
from aisp_mcp.runs import commits
from aisp_mcp.server import files
from aisp_mcp.server.files import Written

WORKFLOW = ".github/workflows/performance.yml"
COMMENT = "performance.md"
TRIAL_S, LONGEST_S = 900.0, 60.0  # for all benchmarks together, and for one of them
OPTIONS = ("-p", "no:cacheprovider", "--continue-on-collection-errors", "--benchmark-disable")
NOTE = "Commit these files. The first pull request is judged with this suite at both commits."


@dataclass(frozen=True)
class Trial:
    """Names of the tests that passed, and the reasons for the others."""

    passed: Sequence[str]
    others: Mapping[str, str]


def init(start: Path, allowed: Sequence[Path]) -> GateInit:
    """Write the suite and the workflow into the repository around `start`.

    Raises NotFound NO_REPOSITORY, Refused OUTSIDE_ROOTS and EXISTS, BenchmarkError NOTHING_TO_MEASURE.
    """
    repo = files.require_inside(commits.repository(start), allowed, "Start with --allow-write DIR.")
    for name in (FOLDER, WORKFLOW):
        if (repo / name).exists():
            raise Refused("EXISTS", f"{repo / name} exists already.", "Move it away to start over.")
    contents = survey(repo, commits.tracked(repo))
    if contents.kind == "pairs":
        gate = 'aisp bench gate --base "$BASE"'
        written = [_workflow(repo, GATE.format(command=gate, comment=COMMENT), package="aisp-mcp[bench]")]
        command = gate.replace('"$BASE"', "HEAD~1")
        return GateInit(kind="pairs", benchmarks=list(contents.names), files=written, command=command, note=NOTE)
    if contents.kind == "pytest":
        return _existing_tests(repo, contents)
    if not contents.names and not contents.programs:
        raise _no_benchmarks(repo)
    return _new_tests(repo, contents)


def _existing_tests(repo: Path, contents: Survey) -> GateInit:
    """The project's own tests, unchanged."""
    trial = _tried(repo, ["-o", "addopts=", *contents.names], contents.names)
    own = {name: benchmark_tests(repo / name) for name in contents.names}
    passed = [test for test in trial.passed if _function(test) in own.get(test.split("::")[0], ())]
    if not passed:
        raise _nothing(trial)
    trial = replace(trial, passed=passed)
    chosen = [name for name in contents.names if any(test.startswith(f"{name}::") for test in trial.passed)]
    skipped = [test for test in trial.others if test.split("::")[0] in chosen]
    words = [*chosen, *(f"--deselect={test}" for test in skipped)]
    return _answer(repo, contents, trial, f"pytest --aisp --aisp-comment {COMMENT} -o addopts= {shlex.join(words)}", [])


def _function(test: str) -> str:
    """The name of a test's function, from its node id."""
    return test.partition("[")[0].split("::")[-1]


def _new_tests(repo: Path, contents: Survey) -> GateInit:
    """Tests that represent benchmarks of asv, or programs."""
    folder = repo / FOLDER
    written = [
        files.write(folder / "pytest.ini", SETTINGS.encode()),
        files.write(folder / "conftest.py", CONFTEST.encode()),
        _suite(folder, contents),
    ]
    words = ["-c", f"{FOLDER}/pytest.ini", FOLDER]
    trial = _tried(repo, words)
    measured = [name for name in _names(contents) if any(_stands_for(test, name) for test in trial.passed)]
    if not measured:
        for file in written:
            Path(file.path).unlink()
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # of the trial run
        folder.rmdir()
        raise _nothing(trial)
    chosen = Survey(
        contents.kind,
        measured,
        contents.folder,
        contents.package,
        [p for p in contents.programs if " ".join(p) in measured],
    )
    written[-1] = _suite(folder, chosen)
    return _answer(repo, contents, trial, f"pytest --aisp --aisp-comment {COMMENT} {shlex.join(words)}", written)


def _names(contents: Survey) -> list[str]:
    return list(contents.names) if contents.kind == "asv" else [" ".join(words) for words in contents.programs]


def _stands_for(test: str, name: str) -> bool:
    """Return True if a test with these parameters measures the benchmark of that name."""
    return test.endswith((f"[{name}]", f"[{name}-0]"))


def _suite(folder: Path, contents: Survey) -> Written:
    if contents.kind == "asv":
        return files.write(folder / "test_asv.py", asv(contents.folder, contents.names).encode())
    return files.write(folder / "test_programs.py", programs(contents.programs).encode())


def _answer(repo: Path, contents: Survey, trial: Trial, command: str, written: list[Written]) -> GateInit:
    with_base = command.replace("--aisp ", '--aisp --aisp-base "$BASE" ', 1)
    return GateInit(
        kind=contents.kind,
        benchmarks=list(trial.passed),
        left_out=[LeftOut(name=name, reason=reason) for name, reason in trial.others.items()],
        files=[*written, _workflow(repo, with_base)],
        command=with_base.replace('"$BASE"', "HEAD~1"),
        note=NOTE,
    )


def _workflow(repo: Path, command: str, package: str = "aisp-mcp") -> Written:
    """package: only pairs need torch; other suites bring what they need."""
    text = WORKFLOW_TEXT.format(command=command, comment=COMMENT, package=package)
    return files.write(repo / WORKFLOW, text.encode())


def _tried(repo: Path, words: Sequence[str], tests: Sequence[str] = ()) -> Trial:
    """Run the tests once, without measuring. tests: their files, from which names begin."""
    with tempfile.TemporaryDirectory(prefix="aisp-gate-") as temporary:
        report = Path(temporary) / "junit.xml"
        command = python.module("pytest", "-q", *OPTIONS, f"--junitxml={report}", *words)
        done = run(command, timeout_s=TRIAL_S, cwd=repo)
        if not report.is_file():
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            return Trial([], {"pytest": lines[-1][:300] if lines else "it gave no answer"})
        cases = list(ElementTree.parse(report).iter("testcase"))
    others = {_name(case, tests): reason for case in cases if (reason := _reason(case))}
    return Trial([name for case in cases if (name := _name(case, tests)) not in others], others)


def _name(case: ElementTree.Element, tests: Sequence[str]) -> str:
    """The test's node id, such as bench/test_a.py::TestB::test_c; only its name if its file is not among these."""
    name, module = case.get("name", ""), case.get("classname", "")
    for file in tests:
        dotted = file.removesuffix(".py").replace("/", ".")
        if module == dotted or module.startswith(f"{dotted}."):
            return "::".join([file, *filter(None, module.removeprefix(dotted).split(".")), name])
        if not module and name == dotted:  # it could not be collected
            return file
    return name


def _reason(case: ElementTree.Element) -> str:
    """The reason that keeps a test out of the suite; empty if there is none."""
    for kind in ("failure", "error", "skipped"):
        if (problem := case.find(kind)) is not None:
            lines = [line for line in (problem.text or "").splitlines() if line.startswith("E ")]
            return f"{kind}: {(lines[-1][1:].strip() if lines else problem.get('message', ''))[:300]}"
    seconds = float(case.get("time", 0))
    return f"one call takes {seconds:.0f} s, more than {LONGEST_S:g}" if seconds > LONGEST_S else ""


def _no_benchmarks(repo: Path) -> BenchmarkError:
    kinds = "no test that takes `benchmark` or `aisp_bench`, no asv suite, no program and no package"
    hint = (
        "Write one test, such as `def test_speed(aisp_bench): aisp_bench(FUNCTION, ARGUMENT)` in test_speed.py, "
        "`git add` it, and run `aisp gate init` again."
    )
    return BenchmarkError("NOTHING_TO_MEASURE", f"{repo} tracks nothing to measure: {kinds}.", hint)


def _nothing(trial: Trial) -> BenchmarkError | NotFound:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in list(trial.others.items())[:3])
    install = f"{shlex.quote(sys.executable)} -m pip install pytest -e ."
    hint = f"Install what the benchmarks need beside aisp, such as `{install}`, or aisp in the project's environment."
    return BenchmarkError("NOTHING_TO_MEASURE", f"None of the benchmarks in this repository runs here. {reasons}", hint)


FOLDER = "aisp_gate"

SETTINGS = """[pytest]
# Of this folder alone, so that the project's own options do not disturb what is timed.
python_files = test_*.py
"""
CONFTEST = '''"""The project's own folders come first on the search path, at each commit its own."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("src", "lib", "python", "") if (ROOT / name).is_dir()]
'''
ASV = '''"""Benchmarks of asv's suite as tests that `pytest --aisp` measures. Memory and tracking are left to asv."""

import importlib
import itertools
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).resolve().parents[1] / "{folder}"
SELECTED = {names}
COMBINATIONS = 1  # of parameters, the first ones

sys.path.insert(0, str(SUITE.parent))


def find(name):
    """(module, class or None, name of the function) of MODULE:CLASS.time_NAME."""
    module, _, rest = name.partition(":")
    owner, _, function = rest.rpartition(".")
    module = importlib.import_module(f"{{SUITE.name}}.{{module}}")
    return module, getattr(module, owner) if owner else None, function


def combinations(subject, function):
    """Tuples of arguments, as asv makes them of `params`."""
    params = getattr(getattr(subject, function), "params", None) or getattr(subject, "params", None) or []
    if params and not isinstance(params[0], (list, tuple)):
        params = [params]
    return list(itertools.product(*params)) if params else [()]


@pytest.mark.parametrize("number", range(COMBINATIONS))
@pytest.mark.parametrize("name", SELECTED)
def test_asv(aisp_bench, name, number):
    module, owner, function = find(name)
    subject = owner() if owner else module
    arguments = combinations(subject, function)[number:number + 1]
    if not arguments:
        pytest.skip("it has fewer combinations of parameters")
    call, (arguments,) = getattr(subject, function), arguments
    own = subject if owner else call
    if hasattr(own, "setup_cache"):
        arguments = (own.setup_cache(), *arguments)

    def setup():
        for scope in dict.fromkeys((module, own)):
            if hasattr(scope, "setup"):
                scope.setup(*(arguments if scope is own else ()))

    try:
        setup()
    except NotImplementedError:
        pytest.skip("its setup says that it does not apply here")
    if getattr(own, "number", 0) == 1:  # asv sets up before each call
        aisp_bench.pedantic(call, args=arguments, setup=setup)
    else:
        aisp_bench(call, *arguments)
    if hasattr(own, "teardown"):
        own.teardown(*arguments)
'''
PROGRAMS = '''"""Programs of this project, each run as a whole in its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [str(ROOT / name) for name in ("src", "lib", "python", "") if (ROOT / name).is_dir()]
PROGRAMS = {programs}


def run(words):
    path = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, env={{**os.environ, "PYTHONPATH": path}}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]


@pytest.mark.parametrize("words", PROGRAMS, ids=" ".join)
def test_program(aisp_bench, words):
    aisp_bench(run, words)


# A function of the project is judged more finely than a program:
#
# def test_parse(aisp_bench):
#     assert aisp_bench(parse, TEXT) == EXPECTED
'''
# The command as a step of the workflow, which leaves the comment in the working folder.
GATE = """{command} --json > gate.json || code=$?
          cp "$(python3 -c "import json; print(json.load(open('gate.json'))['result']['comment_path'])")" {comment}
          exit ${{code:-0}}"""
WORKFLOW_TEXT = """# Judges each pull request against its base, interleaved on one machine. Written by `aisp gate init`.
name: performance
on:
  pull_request:
permissions:
  contents: read
  pull-requests: write
jobs:
  gate:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0 # the base commit must be there
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install "{package}" pytest && pip install -e .
      - run: |
          {command}
        env:
          BASE: ${{{{ github.event.pull_request.base.sha }}}}
      - if: ${{{{ !cancelled() && hashFiles('{comment}') != '' }}}}
        env:
          GH_TOKEN: ${{{{ github.token }}}}
          PULL: ${{{{ github.event.pull_request.number }}}}
        run: |
          cat {comment} >> "$GITHUB_STEP_SUMMARY"
          gh pr comment "$PULL" --body-file {comment} --edit-last || gh pr comment "$PULL" --body-file {comment}
"""


def asv(folder: str, names: Sequence[str]) -> str:
    """The tests that represent benchmarks of asv."""
    return ASV.format(folder=folder, names=pprint.pformat(list(names), width=110))


def programs(words: Sequence[Sequence[str]]) -> str:
    """The tests that represent programs."""
    return PROGRAMS.format(programs=pprint.pformat([list(command) for command in words], width=110))
