"""Run the user's program with the baseline and with the candidate in turns, and judge its time or what it prints.

The first run of each side is not timed: it warms caches up, shows that the program runs, and counts the calls. Then
every replicate is a palindrome of baseline, candidate and baseline again, in a random order.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.functions import sources
from aisp_mcp.judge.functions.sources import Source
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.verdict import endtoend as rule
from aisp_mcp.judge.verdict.endtoend import Alone, Inside
from aisp_mcp.process.run import Completed, run
from aisp_mcp.runs import metric as metrics
from aisp_mcp.runs.endtoend import stepping, swapping
from aisp_mcp.runs.metric import Metric, Unreadable
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run

# Chosen: a program takes seconds to minutes, and each replicate has six runs of it.
REPLICATES = {"quick": 3, "default": 5, "release": 10}
VARIABLE = "env:"
TIME = "time"
_STEP = re.compile(r"\S+\.py:\w+")
Side = Literal["baseline", "candidate"]
Report = Callable[[float, float, str], None]


@dataclass(frozen=True)
class Request:
    """A program of the user's: a command line, or a step as FILE.py:NAME. replace: MODULE:NAME, env:NAME=BEFORE,AFTER,
    or None for the baseline's own place.
    """

    program: str
    replace: str | None
    metric: str
    better: Literal["lower", "higher"]
    replicates: int
    timeout_s: float


@dataclass(frozen=True)
class Task:
    """A request that can be run. task: of swapping, with the baseline in place. function: the candidate, in its words.
    variable: name and its two values, instead.
    """

    argv: Sequence[str]
    cwd: Path
    place: str
    program: str
    task: dict[str, Any]
    function: dict[str, Any] | None
    variable: tuple[str, str, str] | None
    metric: Metric
    sign: int
    is_step: bool
    replicates: int
    timeout_s: float


class Broken(Exception):
    """The program does not run or prints no number. The message is a sentence."""


class Seen(NamedTuple):
    """One run: its metric, and what was counted."""

    value: float
    seconds: float
    steps: int = 0
    calls: float = 0.0
    calls_s: float = 0.0
    step_s: float = 0.0


def prepared(request: Request, target: str, candidate: str) -> Task:
    """Read everything that can be wrong. Raises UsageError BAD_PROGRAM, NO_PROGRAM, and as sources.pair."""
    baseline, other = sources.pair(target, candidate)
    if other.path is None or other.suffix != ".py":
        message = f"{other.title} is no Python file, so it cannot take the baseline's place in a program."
        raise UsageError("BAD_PROGRAM", message, "Give a FILE.py:NAME that calls it.")
    is_step = _STEP.fullmatch(request.program) is not None
    if is_step and request.metric != TIME:
        raise UsageError("BAD_METRIC", "A step is judged by its time.", "Leave out --metric, or give a command: --in.")
    argv, program = _step(request.program) if is_step else _command(request.program)
    variable, module, name = _place(request.replace, baseline)
    if not is_step and not variable and baseline.path is not None and not module:
        _refuse_main(argv, baseline)
    task = {
        "module": module, "last": (module or _stem(baseline)).rpartition(".")[2],
        "path": "" if module else str(baseline.path and baseline.path.resolve()), "name": name,
    }  # fmt: skip
    place = f"{VARIABLE}{variable[0]}" if variable else f"{module or _stem(baseline)}:{name}"
    sign = 1 if request.better == "lower" else -1
    return Task(argv, Path.cwd(), place, program, task, None if variable else _function(other), variable,
                metrics.metric(request.metric), sign, is_step, request.replicates,
                request.timeout_s)  # fmt: skip


def _command(line: str) -> tuple[list[str], str]:
    try:
        words, why = shlex.split(line), "it is empty"
    except ValueError as error:
        words, why = [], str(error)
    if not words:
        raise UsageError("NO_PROGRAM", f"{line[:80]!r} is not a command line: {why}.", "Such as 'python serve.py'.")
    if shutil.which(words[0]) is None:
        raise NotFound(
            "NO_SUCH_FILE",
            f"There is no program {words[0][:200]!r}.",
            "Such as 'python serve.py', or a step of it: serve.py:step.",
        )
    return words, line


def _step(spec: str) -> tuple[list[str], str]:
    source = sources.one(spec)
    if source.path is None or source.suffix != ".py":
        raise UsageError("BAD_PROGRAM", "A step is a function of a Python file.", "Such as --in-step train.py:step.")
    if source.parameters and source.parameters.required:
        names = ", ".join(sorted(source.parameters.required))
        message = f"{source.title}:{source.name} needs the arguments {names}, and a step is called without any."
        raise UsageError("BAD_PROGRAM", message, "Prepare them where the module is imported.")
    path = str(source.path.resolve())
    return [sys.executable, stepping.__file__, path, source.name], f"{source.title}:{source.name}()"


def _place(replace: str | None, baseline: Source) -> tuple[tuple[str, str, str] | None, str, str]:
    """(variable and its values, module, name): of what is replaced. Raises UsageError BAD_REPLACE."""
    if replace and replace.startswith(VARIABLE):
        variable, _, values = replace.removeprefix(VARIABLE).partition("=")
        before, comma, after = values.partition(",")
        if not variable.isidentifier() or not comma or before == after:
            message = f"{replace[:200]!r} names no variable with two values."
            raise UsageError("BAD_REPLACE", message, f"Such as --replace {VARIABLE}ATTENTION=slow,fast.")
        return (variable, before, after), "", ""
    if replace:
        module, colon, name = replace.partition(":")
        if not colon or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
            message = f"{replace[:200]!r} is no MODULE:NAME."
            raise UsageError("BAD_REPLACE", message, "Such as --replace package.module:function.")
        return None, module, name
    if baseline.path is None:
        raise UsageError(
            "BAD_REPLACE", "The baseline is a text, which no program imports.", "Add --replace MODULE:NAME."
        )
    return None, baseline.module, baseline.name


def _refuse_main(argv: Sequence[str], baseline: Source) -> None:
    """A script's own functions are not imported, so nothing can take their place."""
    assert baseline.path is not None
    if any(os.path.exists(word) and baseline.path.samefile(word) for word in argv[1:]):
        message = f"The program {baseline.path.name} defines {baseline.name} itself, and never imports it."
        hint = "Move it into a module of its own, or let the program choose by a variable: --replace env:NAME=a,b."
        raise UsageError("BAD_PROGRAM", message, hint)


def _stem(baseline: Source) -> str:
    return baseline.module or (baseline.path.stem if baseline.path else "")


def _function(source: Source) -> dict[str, Any]:
    assert source.path is not None
    folders = [str(folder) for folder in (source.root, source.path.parent) if folder]
    return {"module": source.module, "file": str(source.path), "stem": source.path.stem, "name": source.name,
            "folders": folders}  # fmt: skip


def conclude(ctx: Context, judged: Run, turns: Turns, margin: float | None) -> Run:
    """The run of the pair with the verdict on the program, stored. Without it if the candidate is not right."""
    alone = _alone(judged)
    if alone is None:
        return judged
    try:
        verdict = rule.conclude(alone, turns.seen(), margin)
    except Broken as broken:
        task = turns.task
        message = f"{task.program} with the candidate {broken}"
        verdict = rule.failed(alone, task.program, task.place, task.metric.text, message)
    done = judged.model_copy(update={"program": verdict})
    ctx.store.save_run(done, ctx.job_id)
    return done


def _alone(run_record: Run) -> Alone | None:
    """The verdict on the pair; None if the candidate is not right or not honest, and must not run elsewhere."""
    judged = [comparison.verdict for comparison in run_record.comparisons]
    if not judged or any(verdict in (Verdict.INVALID, Verdict.INCORRECT) for verdict in judged):
        return None
    if run_record.workload is not None:
        return Alone(run_record.workload.verdict, run_record.workload.ratio)
    return Alone(run_record.comparisons[0].verdict, run_record.comparisons[0].ratio)


class Turns:
    """All runs of a program. The first one is made at once: it shows whether the program calls the baseline.

    Raises BenchmarkError PROGRAM_FAILED, NEVER_CALLED.
    """

    def __init__(self, chosen: Task, folder: Path, report: Report) -> None:
        self.task, self._folder, self._report = chosen, folder, report
        self._steps, self._total = 0, 2 + 6 * chosen.replicates
        hook = folder / "hook"
        hook.mkdir(parents=True, exist_ok=True)
        shutil.copy(swapping.__file__, hook / "sitecustomize.py")
        self._path = os.pathsep.join(filter(None, [str(hook), os.environ.get("PYTHONPATH")]))
        report(0, self._total, "running the program once to count the calls")
        self._before = self._counted("baseline")
        self._steps = self._before.steps
        if not chosen.variable and not self._before.calls:
            raise self._never_called()

    def seen(self) -> Inside:
        """Measure. Raises BenchmarkError PROGRAM_FAILED; Broken for the candidate's faults."""
        task, total, before = self.task, self._total, self._before
        self._report(1, total, "running the program once with the candidate")
        after = self._counted("candidate")
        log_ratios, noise, values = list[float](), list[float](), dict[Side, list[float]]()
        for replicate in range(task.replicates):
            reduced = self._replicate(values, 2 + 6 * replicate)
            log_ratios.append(reduced.log_ratio)
            noise.append(reduced.noise)
        return Inside(
            task.program, task.place, task.metric.text, [task.sign * value for value in log_ratios], noise,
            statistics.median(values["baseline"]), statistics.median(values["candidate"]), total,
            share=self._share(before), calls=before.calls / max(before.steps, 1) if before.calls else None,
            in_place=_in_place(before, after), notes=self._notes(before),
        )  # fmt: skip

    def _replicate(self, values: dict[Side, list[float]], before: int) -> stats.ReplicateRatio:
        order = random.SystemRandom().sample(list(Role), len(Role))
        rounds = list[tuple[Role, float]]()
        for at, role in enumerate([*order, *order[::-1]], before):
            self._report(at, self._total, f"run {at + 1} of {self._total} of the program")
            side: Side = "candidate" if role is Role.CANDIDATE else "baseline"
            value = self._once(side, counts=None).value
            values.setdefault(side, []).append(value)
            rounds.append((role, value))
        return stats.replicate_log_ratio(rounds)

    def _counted(self, side: Side) -> Seen:
        counts = self._folder / f"counts-{side}"
        counts.mkdir(exist_ok=True)
        return self._once(side, counts)

    def _share(self, before: Seen) -> float | None:
        """Of the metric's time in the baseline's calls; None if the metric is not that time."""
        if not before.calls or self.task.metric.text != TIME:
            return None
        whole = before.step_s if self.task.is_step else before.seconds
        return min(1.0, before.calls_s / whole) if whole else None

    def _notes(self, before: Seen) -> list[str]:
        if self.task.variable:
            return ["The program chooses the function itself: its calls are not counted."]
        if self._share(before) is None:
            return [f"The share of {self.task.metric.text} in the calls is unknown, so nothing is predicted."]
        return []

    def _never_called(self) -> BenchmarkError:
        task = self.task
        module, _, name = task.place.rpartition(":")
        if (self._folder / "seen").exists():
            message = f"{task.program} imports {module} and never calls {name}."
        else:
            message = f"{task.program} never imports {module}."
        hint = "Name what it calls with --replace MODULE:NAME, as its processes import it."
        return BenchmarkError("NEVER_CALLED", message, hint)

    def _once(self, side: Side, counts: Path | None) -> Seen:
        """One run. Raises BenchmarkError PROGRAM_FAILED for the baseline's faults, Broken for the candidate's."""
        task, answer = self.task, self._folder / "answer.json"
        answer.unlink(missing_ok=True)
        words = {
            **task.task,
            "function": task.function if side == "candidate" else None,
            "counts": str(counts) if counts else None,
            "seen": str(self._folder / "seen") if counts else None,
        }
        (self._folder / "swap.json").write_text(json.dumps(words))
        env = {**os.environ, "PYTHONPATH": self._path, swapping.VARIABLE: str(self._folder / "swap.json")}
        if task.variable:
            env[task.variable[0]] = task.variable[1 + (side == "candidate")]
        argv = [*task.argv, str(self._steps), str(answer)] if task.is_step else list(task.argv)
        done = run(argv, timeout_s=task.timeout_s, env=env, cwd=task.cwd)
        try:
            return self._read(done, answer, counts)
        except Broken as broken:
            if side == "candidate":
                raise
            message = f"{task.program} with the baseline {broken}"
            raise BenchmarkError("PROGRAM_FAILED", message, "It must run as it is, from this folder.") from None

    def _read(self, done: Completed, answer: Path, counts: Path | None) -> Seen:
        if done.timed_out:
            raise Broken(f"did not end within {self.task.timeout_s:g} s.")
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["it wrote nothing"]
            deep = " It calls what it replaces: let it keep the original, imported at its top."
            hint = deep * ("RecursionError" in lines[0])
            raise Broken(f"ended with {done.returncode}: {lines[0][:200]}.{hint}")
        calls, calls_s = _read_counts(counts)
        if self.task.is_step:
            found = json.loads(answer.read_text())
            seconds = found["steps_s"]
            return Seen(statistics.median(seconds), done.seconds, len(seconds), found["calls"], found["calls_s"],
                        math.fsum(seconds))  # fmt: skip
        return Seen(self._metric(done), done.seconds, calls=calls, calls_s=calls_s)

    def _metric(self, done: Completed) -> float:
        if self.task.metric.text == TIME:
            return done.seconds
        printed = self._folder / "stdout"
        printed.write_text(f"{done.stdout}\n{done.stderr}")
        try:
            value = self.task.metric.read(printed, "its output")
        except Unreadable as error:
            raise Broken(f"gives no number: {error}.") from None
        if value <= 0:
            raise Broken(f"printed {value:g}, and a ratio needs numbers above 0.")
        return value


def _read_counts(folder: Path | None) -> tuple[float, float]:
    """Calls and seconds of the process that spent most on them, so that parallel ones do not add up."""
    rows = [memoryview(file.read_bytes()).cast("d")[:2].tolist() for file in (folder.glob("*.calls") if folder else ())]
    return max(((calls, seconds) for calls, seconds in rows), key=lambda row: row[1], default=(0.0, 0.0))


def _in_place(before: Seen, after: Seen) -> float | None:
    if not before.calls or not after.calls or not after.calls_s:
        return None
    return (before.calls_s / before.calls) / (after.calls_s / after.calls)
