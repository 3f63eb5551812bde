"""Measure the benchmarks of a finished session: against a git revision, a stored baseline, or alone."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.front.pytest_plugin import baselines, verdicts
from aisp_mcp.front.pytest_plugin.measured import is_benchmark
from aisp_mcp.front.pytest_plugin.verdicts import BenchmarkRow
from aisp_mcp.gate import policy, strays
from aisp_mcp.gate.workloads import processes as measured_processes
from aisp_mcp.gate.workloads import rounds
from aisp_mcp.gate.workloads.processes import Command, MeasuredProcess
from aisp_mcp.gate.workloads.rounds import BenchmarkReplicate
from aisp_mcp.judge.presets import PRESETS, Preset, Role
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN

# Options of the session that measured processes must not get, and whether a separate word may be their value.
_DROPPED = {
    "--aisp-base": True, "--aisp-save": True, "--aisp-baseline": True, "--aisp-preset": True, "--aisp-margin": True,
    "--aisp-comment": True, "--aisp-missing": True, "--aisp-strict": False,
    "--junitxml": True, "--junit-xml": True, "--pdb": False, "-x": False, "--exitfirst": False, "--lf": False,
    "--last-failed": False, "--ff": False, "--failed-first": False, "-n": True, "--numprocesses": True,
}  # fmt: skip
# Options that stop other plugins from interfering with a test that waits to be timed.
_OFF = {"xdist": ["-n0"], "_cov": ["--no-cov"], "timeout": ["--timeout=0"], "cacheprovider": ["-p", "no:cacheprovider"]}
Measured = dict[str, list[BenchmarkReplicate | str]]


@dataclass(frozen=True)
class SessionPlan:
    """Processes to start, by role, and facts about both commits. changed: tests whose file differs."""

    commands: Mapping[Role, Command]
    preset: Preset
    names: Sequence[str]
    changed: frozenset[str] = frozenset()
    head: Path | None = None


def run(session: pytest.Session) -> list[BenchmarkRow]:
    """Measure and judge. Raises pytest.UsageError for a revision or baseline that does not exist."""
    config = session.config
    names = [item.nodeid for item in session.items if is_benchmark(item)]
    base, stored = config.getoption("aisp_base"), config.getoption("aisp_baseline")
    try:
        before = baselines.load(config.rootpath, stored) if stored else None
        if before is not None and (reason := baselines.incomparable(before)):
            return [BenchmarkRow(name, verdicts.NOT_JUDGED, reason) for name in names]
        with ExitStack() as stack:
            plan = _plan(config, names, base, stack)
            measured = _replicates(config, plan, plan.preset.replicates, names)
            rows = _judged(config, plan, measured, before, bool(base))
    except AispError as error:
        raise pytest.UsageError(f"{error.code}: {error.message} {error.hint or ''}") from None
    if name := config.getoption("aisp_save"):
        baselines.save(config.rootpath, name, measured)
    return rows


def check(config: pytest.Config) -> None:
    """Refuse a revision or a baseline that does not exist before any test runs. Raises pytest.UsageError."""
    from aisp_mcp.runs import commits

    try:
        if base := config.getoption("aisp_base"):
            commits.commit_of(commits.repository(config.invocation_params.dir), base)
        if stored := config.getoption("aisp_baseline"):
            baselines.load(config.rootpath, stored)
    except AispError as error:
        raise pytest.UsageError(f"{error.code}: {error.message} {error.hint or ''}") from None


def _plan(config: pytest.Config, names: Sequence[str], base: str | None, stack: ExitStack) -> SessionPlan:
    from aisp_mcp.runs import commits

    here, args = config.invocation_params.dir, _arguments(config)
    cpus = measured_processes.cores()
    # `python -m pytest` finds the modules of the working folder, and so must the processes that it starts.
    has_folder = any(Path(entry or ".").resolve() == here.resolve() for entry in sys.path)
    own = Command(here, args, [here] if has_folder else [], cpus)
    preset = PRESETS[config.getoption("aisp_preset")]
    if base is None:
        return SessionPlan(dict.fromkeys(Role, own), preset, names)
    repo = commits.repository(here).resolve()
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aisp-pytest-"))).resolve()
    there = commits.export(repo, base, work / "base").folder
    below = here.resolve().relative_to(repo)
    changed = frozenset(name for name in names if _differs(config.rootpath / name.split("::")[0], repo, there))
    _lend_tests(config.rootpath, names, repo, there)
    path = [Path(folder) for root in (there / below, there) for folder in strays.sources(root)]
    command = Command(there / below, args, list(dict.fromkeys(path)), cpus)
    commands = {Role.BASELINE: command, Role.BASELINE_REPEAT: command, Role.CANDIDATE: own}
    return SessionPlan(commands, preset, names, changed, repo)


def _lend_tests(root: Path, names: Sequence[str], repo: Path, base: Path) -> None:
    """Give the base the test files that it lacks, with the settings next to them, because a suite may be new. Files
    that it has run with its own settings: those of the head could slow them down.
    """
    for folder, file in {((root / name.split("::")[0]).parent, name.split("::")[0]) for name in names}:
        if not _is_new(root / file, repo, base):
            continue
        for path in (root / file, folder / "conftest.py", folder / "pytest.ini", folder / "__init__.py"):
            if path.is_file() and path.resolve().is_relative_to(repo):
                copy = base / path.resolve().relative_to(repo)
                if not copy.exists():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)


def _is_new(file: Path, repo: Path, base: Path) -> bool:
    return file.resolve().is_relative_to(repo) and not (base / file.resolve().relative_to(repo)).exists()


def _differs(file: Path, repo: Path, base: Path) -> bool:
    """Return True if the test's own file differs at the base."""
    other = base / file.resolve().relative_to(repo) if file.resolve().is_relative_to(repo) else file
    return not (file.is_file() and other.is_file() and file.read_bytes() == other.read_bytes())


def _arguments(config: pytest.Config) -> list[str]:
    """The session's arguments without those that a measured process must not get."""
    remaining, words = list[str](), list(config.invocation_params.args)
    while words:
        word = str(words.pop(0))
        name, inline, _ = word.partition("=")
        if name not in _DROPPED and not (word[:2] == "-n" and word[2:].isalnum()):
            remaining.append(word)
        elif _DROPPED.get(name) and not inline and words:
            words.pop(0)
    off = [word for plugin, words in _OFF.items() if config.pluginmanager.hasplugin(plugin) for word in words]
    return [*remaining, *off]


def _replicates(config: pytest.Config, plan: SessionPlan, count: int, names: Sequence[str]) -> Measured:
    """Measure the named benchmarks in several sets of processes."""
    measured: Measured = {name: [] for name in names}
    for number in range(count if names else plan.head is not None):
        _say(config, f"aisp: replicate {number + 1} of {count}, {len(names)} benchmark(s)")
        processes = {role: MeasuredProcess.start(command) for role, command in plan.commands.items()}
        try:
            for name, replicate in _one_replicate(processes, plan, names).items():
                measured.setdefault(name, []).append(replicate)
        finally:
            for process in processes.values():
                process.close()
        if plan.head:
            _take_over(config, processes[Role.BASELINE].settings)
        if stray := _stray(plan, processes):
            measured = {name: [*rows[:-1], stray] for name, rows in measured.items()}
            break
    return measured


def _take_over(config: pytest.Config, base: Mapping[str, Any]) -> None:
    """Let the base's settings file decide what fails, unless the command line does: the head's may be more lenient."""
    given = {str(word).partition("=")[0] for word in config.invocation_params.args}
    for name, value in base.items():
        option, own = f"--{name.replace('_', '-')}", getattr(config.option, name)
        if option not in given and own != value:
            _say(config, f"aisp: {option} is {own} in this tree's settings and {value} in the base's, which counts")
            setattr(config.option, name, value)


def _one_replicate(
    processes: Mapping[Role, MeasuredProcess], plan: SessionPlan, names: Sequence[str]
) -> dict[str, BenchmarkReplicate | str]:
    collected = {role: process.collected() for role, process in processes.items()}
    for role, known in collected.items():
        if known is None:
            return dict.fromkeys(names, f"{role.label} could not be collected: {processes[role].tail()}")
    shared = [name for name in names if all(name in (known or ()) for known in collected.values())]
    for process in processes.values():
        process.send(select=shared)
    absent = {name: "the base has no such benchmark" for name in names if name not in shared}
    lost = [name for name in collected[Role.BASELINE] or () if name not in plan.names]
    absent |= dict.fromkeys(lost, rounds.MissingBenchmark("the head has no such benchmark"))
    return {**absent, **{name: rounds.measure(processes, name, plan.preset) for name in shared}}


def _stray(plan: SessionPlan, processes: Mapping[Role, MeasuredProcess]) -> str:
    """A reason not to judge if the base loaded modules of the head, as happens with an editable installation."""
    file = strays.find(processes[Role.BASELINE].files, plan.head) if plan.head else ""
    return f"the base imported {file} of the working tree" if file else ""


def _judged(
    config: pytest.Config, plan: SessionPlan, measured: Measured, before: baselines.Baseline | None, with_base: bool
) -> list[BenchmarkRow]:
    margin: float | None = config.getoption("aisp_margin")
    if before is not None:
        return [baselines.judge(name, rows, before, margin) for name, rows in measured.items()]
    rows = [
        verdicts.judge(name, replicates, margin, with_base, name in plan.changed)
        for name, replicates in measured.items()
    ]
    fail = config.getoption("aisp_missing") == "fail"
    rows = [replace(row, fails=fail) if row.verdict == verdicts.MISSING else row for row in rows]
    return _looked_again(config, plan, rows, margin) if with_base else rows


def _looked_again(
    config: pytest.Config, plan: SessionPlan, rows: list[BenchmarkRow], margin: float | None
) -> list[BenchmarkRow]:
    """The rows after further looks, in fresh processes, at apparent slowdowns: the gate's policy decides how many."""
    looks = {row.name: [row.look] for row in rows if row.look is not None}
    least = MIN_MARGIN if margin is None else margin
    for number in range(2, policy.LOOKS + 1):
        again = [name for name, seen in looks.items() if len(seen) == number - 1 and policy.needs_look(seen, least)]
        if not again:
            break
        _say(config, f"aisp: {len(again)} slower, look {number} of at most {policy.LOOKS}")
        measured = _replicates(config, plan, plan.preset.replicates, again)
        for name in again:
            look = verdicts.judge(name, measured[name], margin, True, False).look
            looks[name] += [look] if look is not None else []
    return [verdicts.settled(row, looks.get(row.name, []), least) for row in rows]


def _say(config: pytest.Config, text: str) -> None:
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(text)
