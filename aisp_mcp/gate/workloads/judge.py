"""Judge two commits of a repository on a workload: built once each, tested both, timed in interleaved rounds."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from aisp_mcp.errors import BenchmarkError, NotFound
from aisp_mcp.gate import strays
from aisp_mcp.gate.workloads import child, environments, rounds
from aisp_mcp.gate.workloads.environments import Environment
from aisp_mcp.gate.workloads.processes import Command, MeasuredProcess, cores
from aisp_mcp.gate.workloads.rounds import BenchmarkReplicate
from aisp_mcp.judge import answers
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import PRESETS, Role
from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict.verdict import judge as judge_ratios
from aisp_mcp.runs import commits
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind
from aisp_mcp.system import manifest, sampler

SHORT_S = 3e-3  # a call that is handed over by itself; that takes 0.15 to 0.45 ms (two loaded cores)


@dataclass(frozen=True)
class CommitsRequest:
    """base, head: revisions. tests, build: shell lines. python: of the environments."""

    repo: Path
    base: str
    head: str
    workload: Path
    tests: str | None = None
    build: str | None = None
    python: str | None = None
    preset: str = "default"


class WrongAnswer(Exception):
    """The workload's own check failed at the head."""


@dataclass
class WorkloadProcess(MeasuredProcess):
    """A process that serves a workload. about: its first message, once it is ready."""

    role: Role = Role.BASELINE
    about: dict[str, Any] = field(default_factory=dict)

    def until_ready(self, name: str) -> dict[str, Any] | None:
        """Let it begin, after the roles before it, whose answers a check may need, are ready."""
        self.send(select=[name])
        message = super().until_ready(name)
        if message is None and self.problem.startswith("wrong"):
            self._refuse(self.problem.partition(": ")[2])
        self.about = message or {}
        return message

    def round(self, calls: int, own_clock: bool) -> float:
        """Seconds of a round, each call of which the file's own setup may precede, untimed."""
        if not self.about["units"]:
            return super().round(calls, own_clock)
        seconds = 0.0
        for _ in range(calls):
            self._expect("prepared", prepare=True)
            begin = time.perf_counter()
            self._expect("elapsed", calls=1)
            seconds += time.perf_counter() - begin
            self._expect("settled", settle=True)
        return seconds

    def _refuse(self, message: str) -> NoReturn:
        if self.role is Role.CANDIDATE:
            raise WrongAnswer(message)
        text = f"The workload's own check refuses what the first commit itself returns: {message}"
        raise BenchmarkError("UNSTABLE", text, "Seed what it draws.")

    def _expect(self, word: str, **command: Any) -> None:
        self.send(**command)
        message = self.receive()
        if message is None:
            raise EOFError(self.tail())
        if message.get("outcome") == "wrong":
            self._refuse(message["message"])
        if word not in message:
            raise EOFError(message.get("message") or self.tail())


def judge(ctx: Context, request: CommitsRequest) -> Run:
    """Build, test, measure, and store the run.

    Raises NotFound NO_SUCH_FILE, BenchmarkError TESTS_FAILED, BASELINE_FAILED, and as environments.build.
    """
    begin = time.monotonic()
    workload = request.workload.resolve()
    if not workload.is_file():
        raise NotFound("NO_SUCH_FILE", f"There is no file {request.workload}.", None)
    repo = commits.repository_or_bare(request.repo).resolve()
    home, python = ctx.settings.home.absolute() / "environments", request.python or sys.executable
    both = []
    for number, name in enumerate((request.base, request.head)):
        ctx.progress(number, 10, f"building {name}")
        both.append(environments.build(repo, name, request.build, python, home))
    base, head = both
    folder = ctx.run_dir or ctx.settings.home / "runs" / "direct"
    hashes = _stored(workload, folder)
    with sampler.Sampler() as watch, tempfile.TemporaryDirectory(prefix="aisp-commits-") as temporary:
        work = Path(temporary).resolve()
        failed = _tests(ctx, request.tests, both)
        comparison = failed or _measured(ctx, request, (base, head), workload, work, repo)
        seconds = time.monotonic() - begin
        facts = _facts(request, both)
        comparison = comparison.model_copy(
            update={
                "target": f"{repo.name}:{workload.stem}",
                "seconds": seconds,
                "disclosed": {**comparison.disclosed, **facts},
            }
        )
        during = watch.summary()
    ids = {"base": base.commit, "head": head.commit}
    run = Run(
        id=ctx.job_id or f"r_{secrets.token_urlsafe(16)}",
        created_at=ctx.clock(),
        kind=RunKind.COMMITS,
        preset=request.preset,
        profile="portable",
        environment={**manifest.manifest(), "commits": ids, "during": during},
        comparisons=[comparison],
        seconds=seconds,
        sources=hashes,
    )
    ctx.store.save_run(run, ctx.job_id)
    return run


def _stored(workload: Path, folder: Path) -> dict[str, str]:
    """Keep the workload with the run; its hash by path."""
    name = f"sources/{workload.name}"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(workload, folder / name)
    return {name: hashlib.sha256(workload.read_bytes()).hexdigest()}


def _facts(request: CommitsRequest, both: Sequence[Environment]) -> dict[str, Any]:
    return {
        "tests": request.tests,
        "environments": [
            {"commit": each.commit, "build": each.build, "folder": str(each.folder), "kept": each.was_kept}
            for each in both
        ],
    }


def _comparison(**fields: Any) -> Comparison:
    return Comparison(**{"target": "", "candidate": "", "isolation": "L0", "replicates": 0, **fields})


def _refused(code: str, message: str) -> Comparison:
    """The comparison of a head that is wrong, whatever its speed."""
    flags = [Flag(code=code, severity="fatal", message=message)]
    outcome = judge_ratios([], [], flags=flags)
    return _comparison(verdict=outcome.verdict, sentence=outcome.sentence, flags=flags)


def _tests(ctx: Context, line: str | None, both: Sequence[Environment]) -> Comparison | None:
    """A comparison if the tests pass at the base and fail at the head. Raises BenchmarkError TESTS_FAILED."""
    for number, environment in enumerate(both if line else ()):
        ctx.progress(2 + number, 10, f"testing {environment.name}")
        done = environment.shell(line or "", environments.TESTS_S)
        if done.ok:
            continue
        message = f"The tests fail at {environment.name}: {environments.last_line(done)}"
        if not number:
            hint = "Name tests that pass at the first commit: others cannot tell whether the second is right."
            raise BenchmarkError("TESTS_FAILED", message, hint)
        return _refused("incorrect_tests", message)
    return None


def _measured(
    ctx: Context,
    request: CommitsRequest,
    both: tuple[Environment, Environment],
    workload: Path,
    work: Path,
    repo: Path,
) -> Comparison:
    preset = PRESETS[request.preset]
    replicates, about, varies = list[BenchmarkReplicate](), dict[str, Any](), False
    for number in range(preset.replicates):
        ctx.progress(4 + 6 * number / preset.replicates, 10, f"replicate {number + 1} of {preset.replicates}")
        seed = str(secrets.randbelow(2**32))  # the order of sets can decide how long a call takes
        processes = {
            role: WorkloadProcess.start(_command(role, both[role is Role.CANDIDATE], workload, work, seed))
            for role in Role
        }
        try:
            for role, process in processes.items():
                process.role = role
                process.receive()  # it has started
            measured = rounds.measure(processes, child.NAME, preset)
            about = processes[Role.CANDIDATE].about
        except WrongAnswer as wrong:
            return _refused("incorrect_output", f"The workload's own check fails at {request.head}: {wrong}")
        finally:
            for process in processes.values():
                process.close()
        if isinstance(measured, str):
            return _not_measured(measured, request)
        for role, process in processes.items():
            if stray := strays.find(process.files, repo):
                raise BenchmarkError("BASELINE_FAILED", f"{role.label} imported {stray} of the working tree.", None)
        if not number:
            varies = bool(_difference(work, Role.BASELINE_REPEAT))
        if not number and not varies and (different := _difference(work, Role.CANDIDATE)):
            return _refused("incorrect_output", f"The workload's result differs at {request.head}: {different}")
        replicates.append(measured)
    return _judged(replicates, {**about, "checked": "", "varies": True} if varies else about)


def _not_measured(problem: str, request: CommitsRequest) -> Comparison:
    """The comparison of a head at which the workload fails. Raises BenchmarkError BASELINE_FAILED for the base."""
    if isinstance(problem, rounds.MissingBenchmark):
        return _refused("incorrect_failed", f"The workload runs at {request.base} and not at {request.head}: {problem}")
    raise BenchmarkError("BASELINE_FAILED", f"The workload was not measured: {problem}", "Run it at the first commit.")


def _command(role: Role, environment: Environment, workload: Path, work: Path, hash_seed: str) -> Command:
    folder = work / role
    folder.mkdir(exist_ok=True)
    args = [child.__file__, str(workload), role, str(work), str(answers.WRITER)]
    return Command(
        folder,
        [*args, *(str(path) for path in environment.sources)],
        cpus=cores(),
        program=(environment.python, "-s"),
        variables={**environment.variables, "PYTHONPATH": "", "PYTHONHASHSEED": hash_seed},
    )


def _difference(work: Path, role: Role) -> str | None:
    """The difference between the role's first result and the baseline's; None without one, or if it is not known."""
    expected, found = (work / f"{each}.answer" for each in (Role.BASELINE, role))
    if not (expected.is_file() and found.is_file()):
        return None
    return answers.difference(expected.read_bytes(), found.read_bytes())


def _judged(replicates: Sequence[BenchmarkReplicate], about: dict[str, Any]) -> Comparison:
    flags = []
    if not about["units"]:
        text = "Every call has the same inputs, so results kept between calls look faster: a setup() prevents that."
        flags.append(Flag(code="inputs_not_fresh", severity="warn", message=text))
    if not about.get("checked"):
        kind = about.get("unknown")
        message = f"a {kind}, which cannot be compared" if kind else "nothing"
        text = f"The workload returns {message}: only tests can show that both commits do the same."
        if about.get("varies"):
            text = "The workload's result varies from run to run, so it is not compared: seed what setup() draws."
        flags.append(Flag(code="output_not_compared", severity="warn", message=text))
    shortest_s = min(statistics.median(each.seconds[role] for each in replicates) for role in Role)
    if about["units"] and shortest_s < SHORT_S:
        text = (
            f"Calls of {1000 * shortest_s:.2g} ms are handed over one by one, because a setup precedes each: the ratio "
            "of the work itself is further from 1."
        )
        flags.append(Flag(code="clock_resolution_low", severity="warn", message=text))
    ratios, noise = [each.log_ratio for each in replicates], [each.noise for each in replicates]
    outcome = judge_ratios(ratios, noise, flags=flags)
    return _comparison(
        **outcome.fields(),
        replicates=len(replicates),
        baseline=_figures(replicates, Role.BASELINE),
        optimized=_figures(replicates, Role.CANDIDATE),
        flags=[*flags, *outcome.flags],
        disclosed={"compared": about.get("checked") or "nothing"},
    )


def _figures(replicates: Sequence[BenchmarkReplicate], role: Role) -> Figures:
    seconds = [each.seconds[role] for each in replicates]
    middle, high, _ = stats.percentiles(seconds)
    return Figures(
        processes=len(seconds),
        rounds=len(seconds),
        calls=len(seconds),
        time_s=middle,
        p50_s=middle,
        p95_s=high,
        parent_time_s=middle,
    )
