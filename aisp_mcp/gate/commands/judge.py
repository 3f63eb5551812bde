"""Judge two command lines as whole programs, in any language: fresh inputs, interleaved runs, outputs compared.

Each replicate runs baseline, candidate and the baseline again in a random order on a new input, then all three in
reverse on another one, and compares the candidate's output with the baseline's for the same input.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import secrets
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.gate.commands import outputs_check, process
from aisp_mcp.gate.commands.process import OUTPUT, Limits, Ran, run
from aisp_mcp.gate.commands.records import CommandComparison, CommandFigures
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Flag, all_passed
from aisp_mcp.judge.verdict.verdict import judge
from aisp_mcp.process import isolation
from aisp_mcp.process.isolation import Level

BASELINE, AGAIN, CANDIDATE = "baseline", "again", "candidate"
ROLES = {BASELINE: Role.BASELINE, AGAIN: Role.BASELINE_REPEAT, CANDIDATE: Role.CANDIDATE}
REPLICATES = {"quick": 3, "default": 7, "release": 15}
# CPU seconds beyond cores times wall time that the kernel's rounding can explain.
CPU_SHARE, CPU_LEAST_S = 1.1, 0.05


@dataclass(frozen=True)
class CommandRequest:
    """make: program that writes input files, run as `make SEED FOLDER`; check: as `check INPUT EXPECTED FOUND`. files:
    paths below the working folder to copy for both programs, in addition to those in their own command lines. warmup:
    untimed runs of each command, before all others.
    """

    baseline: Sequence[str]
    candidate: Sequence[str]
    make: Path | None
    check: Path | None
    cores: int
    memory_mb: float | None
    timeout_s: float
    replicates: int
    margin: float | None
    files: Sequence[Path] = ()
    warmup: int = 0


@dataclass(frozen=True)
class Folders:
    """Folders of a comparison. root: the caller's, to which inputs are relative. outputs: of finished runs, hidden from
    all runs. inputs: of each program, to be copied into the folder of each of its runs.
    """

    root: Path
    work: Path
    outputs: Path
    inputs: dict[bool, tuple[Path, ...]]


@dataclass
class Seen:
    """All runs so far, by role."""

    runs: dict[str, list[Ran]] = field(default_factory=lambda: {BASELINE: [], AGAIN: [], CANDIDATE: []})
    log_ratios: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    checked: int = 0
    before: Path = Path()  # the baseline's outputs for the input before


class Ended(Exception):
    """The comparison stops early; its flag determines the verdict."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.flag = Flag(code=code, severity="fatal", message=message)


def compare(
    request: CommandRequest, report: Callable[[float, float, str], None] = lambda *_: None
) -> CommandComparison:
    """Measure and judge. Raises BenchmarkError BASELINE_FAILED, INPUT_FAILED, UsageError TOO_MANY_CORES, NotFound."""
    for path in filter(None, (request.make, request.check)):
        if not path.is_file():
            raise NotFound("NO_SUCH_FILE", f"There is no file {path}.", None)
    request = replace(
        request, make=request.make and request.make.resolve(), check=request.check and request.check.resolve()
    )
    limits = Limits(_cores(request.cores), _bytes(request.memory_mb), request.timeout_s)
    level: Level = isolation.demand("auto")
    seen, flags = Seen(), []
    with ExitStack() as stack:
        folders = _folders(request, stack)
        empty = _empty_program(folders.work, level, limits)
        try:
            _warm_up(request, folders, level, limits, empty.cpu_s)
            for number in range(request.replicates):
                report(number, request.replicates, f"replicate {number + 1} of {request.replicates}")
                _replicate(request, folders, level, limits, seen, empty.cpu_s)
        except Ended as ended:
            flags.append(ended.flag)
    report(request.replicates, request.replicates, "judging")
    flags += _start_flag(seen, empty.seconds)
    outcome = judge(seen.log_ratios, seen.noise, margin=request.margin, flags=flags)
    return CommandComparison(
        verdict=outcome.verdict,
        passed=all_passed([outcome.verdict]),
        sentence=outcome.sentence,
        ratio=outcome.ratio,
        interval=outcome.interval,
        noise_floor=outcome.noise_floor,
        start_s=empty.seconds,
        checked=seen.checked,
        check=f"by {request.check.name}" if request.check else "standard output and files byte by byte",
        isolation=level,
        baseline=_figures(request.baseline, [*seen.runs[BASELINE], *seen.runs[AGAIN]]),
        candidate=_figures(request.candidate, seen.runs[CANDIDATE]),
        flags=[*flags, *outcome.flags],
    )


def _folders(request: CommandRequest, stack: ExitStack) -> Folders:
    """Create the folders. Isolated programs see the working folder, so this process enters an empty one."""
    inputs = {
        is_candidate: process.needed(argv, request.files)
        for is_candidate, argv in ((False, request.baseline), (True, request.candidate))
    }
    root = Path.cwd()
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aisp-commands-"))).resolve()
    folders = Folders(root, work, work / "outputs", inputs)
    folders.outputs.mkdir(mode=0o700)
    (work / "empty").mkdir()
    stack.enter_context(contextlib.chdir(work / "empty"))
    return folders


def _warm_up(request: CommandRequest, folders: Folders, level: Level, limits: Limits, start_cpu_s: float) -> None:
    """Run untimed rounds, whose outputs are judged like all others, to warm the disk caches."""
    for _ in range(request.warmup):
        _replicate(request, folders, level, limits, Seen(), start_cpu_s)


def _replicate(
    request: CommandRequest, folders: Folders, level: Level, limits: Limits, seen: Seen, start_cpu_s: float
) -> None:
    """Run each role twice, in a palindrome. Each half has its own input, so that no program sees an input twice: it
    could store an answer outside its folder, for example in which pages of a large file are cached.

    Raises Ended for the candidate's faults, BenchmarkError otherwise.
    """
    order = [BASELINE, CANDIDATE, AGAIN]
    random.SystemRandom().shuffle(order)
    rounds = list[tuple[Role, float]]()
    for half in (order, order[::-1]):
        rounds += _half(half, request, folders, level, limits, seen, start_cpu_s)
    reduced = stats.replicate_log_ratio(rounds)
    seen.log_ratios.append(reduced.log_ratio)
    seen.noise.append(reduced.noise)


def _half(
    order: Sequence[str],
    request: CommandRequest,
    folders: Folders,
    level: Level,
    limits: Limits,
    seen: Seen,
    start_cpu_s: float,
) -> list[tuple[Role, float]]:
    """Run each role once on one new input and compare the outputs; seconds of each. Raises as _replicate."""
    source = folders.work / secrets.token_hex(4)
    source.mkdir()
    _make_input(request, source)
    rounds, outputs = list[tuple[Role, float]](), dict[str, Path]()

    def ran(role: str) -> Ran:
        run_folder = folders.work / secrets.token_hex(4)  # the name reveals neither the role nor the number of the run
        run_folder.mkdir()
        argv, own = (request.candidate if role == CANDIDATE else request.baseline), folders.inputs[role == CANDIDATE]
        process.copy_in(own, folders.root, run_folder)
        argv = [_filled(word, source) for word in argv]
        done = run(argv, run_folder, level, limits, {"AISP_INPUT": str(source)}, hidden=[folders.outputs])
        _refuse(role, done, request, limits, start_cpu_s)
        outputs[role] = _taken_out(role, run_folder, own, folders)
        return done

    for turn, role in enumerate(order):
        try:
            done = ran(role)
        except Ended:
            if not turn:  # a failure of both is not held against the candidate
                ran(BASELINE)
            raise
        seen.runs[role].append(done)
        rounds.append((ROLES[role], done.seconds))
    if not seen.checked:
        outputs_check.try_out(request.check, source, outputs[BASELINE], outputs[AGAIN])
    if request.check and request.make and seen.checked == 1:
        outputs_check.try_other(request.check, source, outputs[BASELINE], seen.before)
    seen.before = outputs[BASELINE]
    if different := outputs_check.compared(request.check, source, outputs[BASELINE], outputs[CANDIDATE]):
        raise Ended(different.code, different.message)
    seen.checked += 1
    return rounds


def _taken_out(role: str, run_folder: Path, inputs: Sequence[Path], folders: Folders) -> Path:
    """Move the outputs of a run to a hidden folder, and return it."""
    target = folders.outputs / run_folder.name
    try:
        process.take_out(run_folder, inputs, folders.root, target)
    except process.BadOutput as bad:
        if role == CANDIDATE:
            raise Ended("incorrect_output", f"The candidate's {bad}.") from bad
        raise BenchmarkError("BASELINE_FAILED", f"The baseline's {bad}.", "Its outputs cannot be compared.") from bad
    return target


def _filled(word: str, source: Path) -> str:
    """Replace {input} by the folder of input files."""
    return word.replace("{input}", str(source))


def _refuse(role: str, done: Ran, request: CommandRequest, limits: Limits, start_cpu_s: float) -> None:
    """End the comparison if a run failed or exceeded its declared limits."""
    who = "candidate" if role == CANDIDATE else "baseline"
    problem = None
    if done.code is None:
        problem = ("timeout", f"The {who} did not finish within {limits.timeout_s:g} s.")
    elif done.code != 0:
        said = done.stderr.strip()[-300:]
        problem = ("failed", f"The {who} exited with {done.code}{f': {said}' if said else '.'}")
    elif (cpu_s := done.cpu_s - start_cpu_s) > CPU_SHARE * request.cores * done.seconds + CPU_LEAST_S:
        usage = f"{cpu_s:.2f} s of CPU time in {done.seconds:.2f} s, with {request.cores} cores declared"
        problem = ("cores", f"The {who} took {usage}.")
    if problem is None:
        return
    if role != CANDIDATE:
        hint = "The baseline must run as declared."
        if request.make is None and any("{input}" in word for word in request.baseline):
            hint = "Without --make the folder {input} is empty."
        elif any(text in done.stderr for text in ("No such file", "ModuleNotFoundError")):
            hint = "Runs get copies of the files that their command names. Give others, or a folder, with --file."
        raise BenchmarkError("BASELINE_FAILED", problem[1], hint)
    raise Ended(f"incorrect_{problem[0]}" if problem[0] == "failed" else f"candidate_{problem[0]}", problem[1])


def _make_input(request: CommandRequest, source: Path) -> None:
    """Generate new files with a secret seed; without a generator, the folder stays empty."""
    if request.make is None:
        return
    done = outputs_check.helper(request.make, [str(secrets.randbits(48)), str(source)], source)
    (source / OUTPUT).unlink()
    if done.code != 0:
        raise BenchmarkError("INPUT_FAILED", f"{request.make.name} ended with {done.code}: {done.stderr[-300:]}")


def _empty_program(work: Path, level: Level, limits: Limits) -> Ran:
    """The shortest of three runs of an empty program: the start-up overhead, in time and CPU time."""
    took = []
    for number in range(3):
        folder = work / f"start-{number}"
        folder.mkdir()
        took.append(run(["true"], folder, level, limits, {}))
    return min(took, key=lambda run: run.seconds)


def _start_flag(seen: Seen, start_s: float) -> list[Flag]:
    """A note if process start-up is a large part of the measured time."""
    fastest = min((run.seconds for runs in seen.runs.values() for run in runs), default=math.inf)
    if start_s < 0.2 * fastest:
        return []
    durations = f"{1000 * start_s:.1f} ms of {1000 * fastest:.1f} ms"
    message = f"Starting a process takes {durations}: the ratio of the work itself is further from 1."
    return [Flag(code="start_dominates", severity="note", message=message)]


def _figures(argv: Sequence[str], runs: Sequence[Ran]) -> CommandFigures | None:
    if not runs:
        return None
    seconds = [run.seconds for run in runs]
    return CommandFigures(
        argv=list(argv),
        median_s=statistics.median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
        cpu_s=statistics.median(run.cpu_s for run in runs),
        peak_bytes=max(run.peak_bytes for run in runs),
        runs=len(runs),
        user_s=statistics.median(run.user_s for run in runs),
        seconds=seconds,
    )


def _cores(count: int) -> frozenset[int]:
    usable = sorted(os.sched_getaffinity(0))
    if count > len(usable):
        raise UsageError("TOO_MANY_CORES", f"{count} cores are declared and {len(usable)} are usable here.", None)
    return frozenset(usable[-count:])


def _bytes(megabytes: float | None) -> int | None:
    return None if megabytes is None else int(megabytes * 1e6)
