"""Write a first suite, run each of its benchmarks once, and leave out those that do not run."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from aisp_mcp.errors import BenchmarkError, NotFound, Refused
from aisp_mcp.gate.setup import texts
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
    for name in (texts.FOLDER, WORKFLOW):
        if (repo / name).exists():
            raise Refused("EXISTS", f"{repo / name} exists already.", "Move it away to start over.")
    contents = survey(repo, commits.tracked(repo))
    if contents.kind == "pairs":
        gate = 'aisp bench gate --base "$BASE"'
        written = [_workflow(repo, texts.GATE.format(command=gate, comment=COMMENT))]
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
    folder = repo / texts.FOLDER
    written = [
        files.write(folder / "pytest.ini", texts.SETTINGS.encode()),
        files.write(folder / "conftest.py", texts.CONFTEST.encode()),
        _suite(folder, contents),
    ]
    words = ["-c", f"{texts.FOLDER}/pytest.ini", texts.FOLDER]
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
        return files.write(folder / "test_asv.py", texts.asv(contents.folder, contents.names).encode())
    return files.write(folder / "test_programs.py", texts.programs(contents.programs).encode())


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


def _workflow(repo: Path, command: str) -> Written:
    text = texts.WORKFLOW.format(command=command, comment=COMMENT)
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
    hint = "Install the project in this environment, or start with `aisp bench new NAME` or a test with aisp_bench."
    return BenchmarkError("NOTHING_TO_MEASURE", f"None of the benchmarks in this repository runs here. {reasons}", hint)
