"""One step of a loop: copy both states, run them in pairs until the answer is clear, and write down every run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from aisp_mcp.errors import UsageError
from aisp_mcp.gate.keep import decide, loop, runner, trees
from aisp_mcp.gate.keep.loop import Loop, Step
from aisp_mcp.gate.keep.records import EXIT_CODES, Kept, Word
from aisp_mcp.gate.keep.trees import Place
from aisp_mcp.process import tree
from aisp_mcp.process.run import MARK
from aisp_mcp.runs import metric
from aisp_mcp.runs.metric import Metric, Rule, Unreadable

CALIBRATION = 8  # identical pairs that a call without any change measures
REFRESHED = 4  # every so many steps, one more identical pair is measured
WARM = 1.25  # a first run that is slower than later ones by so much is named
VISIBLE = 1.05  # a peak of memory must exceed that of an empty program by so much
Report = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class Request:
    """Arguments of a step; see the tool. Those of `what` and `judged` name what is measured and what is decided."""

    command: tuple[str, ...]
    metric: str
    better: Literal["lower", "higher"]
    require: tuple[str, ...]
    against: str | None
    gain: float
    budget: float
    runs: int
    share: tuple[str, ...]
    fixed: tuple[str, ...]
    build: str | None
    output: str | None
    commit: bool
    loop: str
    run_timeout_s: float

    def what(self, where: Place) -> str:
        """A hash of what is measured: runs with the same one can be compared with each other."""
        names = ("command", "metric", "build", "output", "share")
        return _digest({**{name: asdict(self)[name] for name in names}, "below": str(where.below)})

    def judged(self, where: Place) -> str:
        """A hash of what is decided of it."""
        names = ("better", "require", "gain", "fixed")
        return _digest({**{name: asdict(self)[name] for name in names}, "what": self.what(where)})


class Broken(Exception):
    """A program or its output cannot be judged. The message is a sentence."""


@dataclass(frozen=True)
class Values:
    """Numbers of one run: its metric, and those that the conditions name."""

    metric: float
    required: dict[str, float]


@dataclass
class Aside:
    """Facts of one side beside what is counted. build_s: of its build. first: metric of its first run, which is not
    counted. left: least number of processes that a run left running. printed: hashes of its outputs.
    """

    build_s: float = 0.0
    first: float = 0.0
    left: int | None = None
    printed: set[str] = field(default_factory=set)


class Bench(AbstractContextManager["Bench"]):
    """The two copies, and the process that runs them."""

    def __init__(self, request: Request, where: Place, work: Path) -> None:
        self._request, self._where, self._work = request, where, work
        self._metric: Metric = metric.metric(request.metric)
        self._rules: list[Rule] = [metric.rule(text) for text in request.require]
        if self._metric.is_measured and request.output:
            raise UsageError("BAD_METRIC", f"{request.metric} is not read from a file.", "Leave out --output.")
        # Names of equal length that say nothing, so that a program's path is as long on both sides.
        self.incumbent, self.candidate = work / secrets.token_hex(4), work / secrets.token_hex(4)
        self.asides = {folder: Aside() for folder in (self.incumbent, self.candidate)}
        self._process: subprocess.Popen[str] | None = None
        self._least = 0.0
        self._has_run = False  # the incumbent, without an error

    def __enter__(self) -> Bench:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", runner.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1),
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.wait()

    @property
    def is_measured(self) -> bool:
        return self._metric.is_measured

    @property
    def rules(self) -> list[Rule]:
        return self._rules

    def prepare(self) -> None:
        """Link shared files and build both sides; run each once before its time counts. Raises Broken."""
        request = self._request
        trees.share(self._where, list(request.share), [self.incumbent, self.candidate])
        for folder in (self.incumbent, self.candidate):
            if request.build:
                built, _ = self._run(["/bin/sh", "-c", request.build], folder, "'s build")
                self.asides[folder].build_s = built["seconds"]
        if request.metric == "memory":
            self._least = self._run(["true"], self.incumbent)[0]["peak_bytes"] * VISIBLE
        if self._metric.is_measured:  # the first run compiles, or fills caches of the disk
            for folder, aside in self.asides.items():
                aside.first = self.measure(folder, "0").metric

    def measure(self, folder: Path, seed: str) -> Values:
        """Run the program once. Raises Broken."""
        request, who = self._request, self._who(folder)
        if request.output:
            (folder / self._where.below / request.output).unlink(missing_ok=True)
        try:
            ran, out = self._run(request.command, folder, "", seed)
        except Broken:
            if folder == self.candidate and not self._has_run:  # a fault of both is the incumbent's
                self._run(request.command, self.incumbent, "", seed)
            raise
        self._has_run = self._has_run or folder == self.incumbent
        measured: dict[str, float] = {"time": ran["seconds"], "cpu": ran["cpu_s"], "memory": ran["peak_bytes"]}
        aside = self.asides[folder]
        aside.left = min(ran["left"], aside.left if aside.left is not None else ran["left"])
        if self._metric.is_measured:
            with out.open("rb") as printed:
                aside.printed.add(hashlib.file_digest(printed, "sha256").hexdigest())
        if request.metric == "memory" and ran["peak_bytes"] <= self._least:
            message = f"peak of memory is not above {self._least / 1e6:.0f} MB, below which none can be seen"
            raise Broken(f"{who}'s {message}.")
        file, shown = (out, "standard output")
        if request.output:
            file, shown = folder / self._where.below / request.output, request.output
            if not file.is_file():
                raise Broken(f"{who} wrote no file {request.output}.")

        def value(of: Metric) -> float:
            if of.is_measured:
                return measured[of.text]
            try:
                return of.read(file, shown)
            except Unreadable as error:
                raise Broken(f"{who}: {error}.") from error

        return Values(value(self._metric), {rule.text: value(rule.metric) for rule in self._rules})

    def _who(self, folder: Path) -> str:
        return "The incumbent" if folder == self.incumbent else "The candidate"

    def _run(self, argv: Sequence[str], folder: Path, what: str = "", seed: str = "0") -> tuple[dict[str, Any], Path]:
        """The result of one run, and its standard output. Raises Broken unless it ended with 0."""
        assert self._process is not None
        out, err = self._work / "stdout", self._work / "stderr"
        mark = secrets.token_hex(8)
        words = {
            "argv": list(argv),
            "cwd": str(folder / self._where.below),
            "env": {**_environment(self._where, folder), "AISP_SEED": seed, MARK: mark},
            "out": str(out),
            "err": str(err),
            "timeout_s": self._request.run_timeout_s,
        }
        answer = _ask(self._process, words)
        tree.sweep_marked(MARK, mark)
        if not answer:
            raise Broken(f"{self._who(folder)}{what} ended the process that starts it.")
        if answer["code"] != 0:
            raise Broken(self._failure(answer["code"], f"{self._who(folder)}{what}", out, err))
        return answer, out

    def _failure(self, code: int | None, who: str, out: Path, err: Path) -> str:
        if code is None:
            return f"{who} did not end within {self._request.run_timeout_s:g} s."
        lines = [
            line for file in (out, err) for line in file.read_text("utf-8", "replace").splitlines() if line.strip()
        ]
        last = f": {lines[-1].strip()[:200]}" if lines else "."
        missing = any(word in last for word in ("No such file", "ModuleNotFoundError", "not found", "cannot open"))
        hint = " Files that git ignores are in neither copy: name them with --share." if missing else ""
        return f"{who} ended with {code}{last}{hint}"


def _ask(process: subprocess.Popen[str], words: Mapping[str, Any]) -> dict[str, Any]:
    def pipe(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream

    pipe(process.stdin).write(json.dumps(words) + "\n")
    pipe(process.stdin).flush()
    answer: dict[str, Any] = json.loads(pipe(process.stdout).readline() or "{}")
    return answer


def _environment(where: Place, folder: Path) -> dict[str, str]:
    """This process's variables, with modules found in the copy first: a package that is installed in place is
    otherwise imported from the working tree by both sides.
    """
    own = [str(path) for path in (folder / "src", folder) if path.is_dir()]
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    inherited = [
        str(folder / Path(path).relative_to(where.top)) if Path(path).is_relative_to(where.top) else path
        for path in inherited
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*own, *inherited]), "PWD": str(folder / where.below)}


def step(request: Request, folder: Path, home: Path, report: Report = lambda *_: None) -> Kept:
    """Judge the working tree at a folder against the incumbent. Raises UsageError, NotFound, StoreError, Refused."""
    where = trees.place(folder)
    if request.commit:
        trees.refuse_no_commits(where, request.against)
    with (
        loop.opened(trees.state_folder(where, home), request.loop) as state,
        tempfile.TemporaryDirectory(prefix="aisp-keep-", ignore_cleanup_errors=True) as work,
        Bench(request, where, Path(work).resolve()) as bench,
    ):
        report(0, request.runs, "copying both states")
        name = trees.export_incumbent(where, request.against, request.loop, bench.incumbent)
        trees.export_candidate(where, bench.candidate)
        ids = trees.identity(bench.incumbent), trees.identity(bench.candidate)
        judging = _Judging(request, where, state, bench, name, report)
        try:
            return judging.unchanged() if ids[0] == ids[1] else judging.changed(*ids)
        except Broken as broken:
            return judging.answer("broken", str(broken))


@dataclass
class _Judging:
    """The parts of one step."""

    request: Request
    where: Place
    state: Loop
    bench: Bench
    incumbent: str
    report: Report

    @property
    def what(self) -> str:
        return self.request.what(self.where)

    def answer(self, outcome: Word, sentence: str, **fields: Any) -> Kept:
        return Kept(outcome=outcome, exit_code=EXIT_CODES[outcome], sentence=f"{outcome}: {sentence}", **fields)

    def unchanged(self) -> Kept:
        """Measure identical runs: before the loop, this is how it learns its noise."""
        if len(self.state.same(self.what)) < CALIBRATION:
            self.bench.prepare()
            self._identical(CALIBRATION, self.bench.candidate)
        known = self._known()
        usual = _usual(known)
        pairs = f"{len(known)} pairs of identical runs"
        noise = f"{pairs} differed by {_percent(usual)}" if any(known) else f"both runs of {pairs} gave the same number"
        sentence = f"the working tree equals {self.incumbent}; {noise}."
        return self.answer("discard", sentence, noise=usual)

    def changed(self, incumbent: str, candidate: str) -> Kept:
        """Judge a candidate, or repeat the answer if it was judged before. Raises Broken."""
        request, key = self.request, self.request.judged(self.where)
        step = self.state.find(incumbent, candidate, key)
        if step is not None and step.is_decided:
            kept = Kept.model_validate(step.outcome)
            again = kept.model_copy(update={"sentence": f"{kept.sentence} Judged before, in step {step.number}."})
            return self._acted_on(again, candidate)
        number = step.number if step else len(self.state.steps) + 1
        saved = self._saved(number)
        if fixed := trees.changed(list(request.fixed), self.bench.incumbent, self.bench.candidate):
            step = step or self.state.begin(incumbent, candidate, key, self.what, self._known())
            sentence = f"the candidate changes {fixed}."
            return self._stored(self.answer("discard", sentence, step=number, saved=saved), candidate)
        self.bench.prepare()
        if step is None:
            wanted = max(decide.KNOWN, len(self._known()) + (number % REFRESHED == 0))
            self._identical(wanted, self.bench.incumbent)
            step = self.state.begin(incumbent, candidate, key, self.what, self._known())
        outcome = self._measured(step)
        return self._stored(self._concluded(step, outcome, saved), candidate)

    def _known(self) -> list[float]:
        """Differences of identical pairs so far."""
        return [_difference(*pair) for pair in self.state.same(self.what)]

    def _identical(self, wanted: int, other: Path) -> None:
        """Run identical pairs until there are so many, or until a few show no noise."""
        while (count := len(known := self._known())) < wanted and not (count >= decide.EXACT_PAIRS and not any(known)):
            self.report(count, wanted, f"identical pair {count + 1} of {wanted}")
            first, second = self._pair(self.bench.incumbent, other)
            self.state.write("same", what=self.what, values=[first.metric, second.metric])

    def _pair(self, first: Path, second: Path) -> tuple[Values, Values]:
        """Run both in random order with the same seed."""
        seed = str(secrets.randbits(31))
        if random.SystemRandom().random() < 0.5:
            one = self.bench.measure(first, seed)
            return one, self.bench.measure(second, seed)
        other = self.bench.measure(second, seed)
        return self.bench.measure(first, seed), other

    def _measured(self, step: Step) -> decide.Outcome:
        """Add pairs until the answer is clear or the runs of this call are used up."""
        most = len(step.pairs) + self.request.runs
        while True:
            outcome = self._outcome(step)
            if outcome == "keep" and self._may_be_luck(step):
                return "undecided"
            if outcome != "undecided" or len(step.pairs) >= most:
                return outcome
            self.report(len(step.pairs), most, f"step {step.number}, pair {len(step.pairs) + 1}")
            first, second = self._pair(self.bench.incumbent, self.bench.candidate)
            values = [first.metric, second.metric]
            self.state.write("pair", step=step.number, values=values, required=second.required)

    def _outcome(self, step: Step) -> decide.Outcome:
        if len(step.pairs) >= 2 and self._unmet(step, all):
            return "discard"
        if not step.pairs:
            return "undecided"
        differences, known, alpha, gain = self._numbers(step)
        if (repeats := self.state.repeats(self.what)) is not None:
            outcome = decide.decide_exactly(differences, repeats, gain)
        else:
            outcome = decide.decide(differences, known, alpha, gain)
        return "discard" if outcome == "keep" and self._unmet(step, statistics.median) else outcome

    def _may_be_luck(self, step: Step) -> bool:
        """Return True if more runs cannot show that the candidate is better: its few numbers may be of chosen seeds."""
        is_exact = self.bench.is_measured or self.state.repeats(self.what) is not None
        return not is_exact and decide.may_be_luck(step.pairs, self._numbers(step)[0])

    def _numbers(self, step: Step) -> tuple[list[float], list[float], float, float]:
        """The differences, those of identical runs, the error rate of the step, and the gain worth keeping."""
        alpha = self.request.budget * decide.share(step.number)
        wanted = math.log1p(self.request.gain) if _in_logs(step.pairs) else self.request.gain
        return _differences(step.pairs, self.request.better), step.known, alpha, wanted

    def _unmet(self, step: Step, of: Callable[[list[Any]], Any]) -> str | None:
        """The first condition that the candidate's runs do not meet: all of them, or their median."""
        for rule in self.bench.rules:
            values = [required[rule.text] for required in step.required]
            if of is all:
                if not any(rule.holds(value) for value in values):
                    return rule.text
            elif not rule.holds(of(values)):
                return rule.text
        return None

    def _concluded(self, step: Step, outcome: decide.Outcome, saved: str | None) -> Kept:
        request = self.request
        differences, known, alpha, gain = self._numbers(step)
        low, high = decide.interval(differences)
        in_logs = _in_logs(step.pairs)
        mean, lowest, highest = (_gain(value, in_logs) for value in (statistics.fmean(differences), low, high))
        before, after = (statistics.median(values) for values in zip(*step.pairs, strict=True))
        is_exact = self.state.repeats(self.what) is not None
        size, ends = _sizes(statistics.fmean(differences), low, high, in_logs)
        if lowest is not None and highest is not None and not is_exact:
            size += f" (95 % interval {ends})"
        change = f"{_name(request.metric)} {_shown(request.metric, before)} → {_shown(request.metric, after)}"
        sentence = f"{change}, {size}, in {len(differences)} pairs of runs"
        if outcome == "discard":
            unmet = self._unmet(step, statistics.median)
            sentence += f"; not {unmet}" if unmet else f"; not {request.gain * 100:g} % better"
        if is_exact and outcome != "undecided":
            sentence += "; every run gave the same number, so if it depends on a seed, take that from AISP_SEED"
        if outcome == "keep" and self.bench.is_measured:
            sentence += "".join(f"; {words}" for words in self._not_counted(before, after))
        more = None
        if outcome == "undecided" and self._may_be_luck(step):
            sentence += (
                "; the candidate repeats its numbers, perhaps those of lucky seeds: take the seed from AISP_SEED"
            )
        elif outcome == "undecided":
            count = None if is_exact else decide.more(differences, known, alpha, gain)
            more = None if count is None else 2 * count
            again = "repeat the command to add them" if more else "the difference is too small for this noise"
            sentence += f"; needs about {more} more runs: {again}" if more else f"; {again}"
        required = {
            rule.text: statistics.median(required[rule.text] for required in step.required) for rule in self.bench.rules
        }
        return self.answer(
            outcome,
            f"{sentence}.",
            step=step.number,
            gain=mean,
            low=lowest,
            high=highest,
            pairs=len(differences),
            more_runs=more,
            noise=_usual(known),
            chance=alpha,
            incumbent=self.incumbent,
            before=before,
            after=after,
            require=required,
            saved=saved,
        )

    def _not_counted(self, before: float, after: float) -> Iterator[str]:
        """Why a gain in time, processor time or memory may not be one. before, after: medians of the metric."""
        old, new = self.bench.asides.values()
        name = self.request.metric
        if name in ("time", "cpu") and new.build_s > old.build_s + before - after:
            builds = [_shown("time", seconds) for seconds in (new.build_s, old.build_s)]
            yield f"its build, which is not counted, took {builds[0]}, the incumbent's {builds[1]}"
        if new.first > WARM * after * max(1.0, old.first / before) and new.first > math.sqrt(before * after):
            first = _shown(name, new.first)
            yield f"its first run, which is not counted, took {first}: later ones may use what it left"
        if new.left and not old.left:
            yield "each run left processes running, which were ended"
        if len(old.printed) == 1 and old.printed.isdisjoint(new.printed) and not self.request.require:
            yield "it prints something else than the incumbent; name what must hold with --require"

    def _saved(self, number: int) -> str | None:
        if self.where.repo is None:
            return None
        return trees.save(self.where.repo, self.request.loop, number, self.bench.incumbent.with_name("index"))

    def _stored(self, kept: Kept, candidate: str) -> Kept:
        self.state.write("answer", step=kept.step, answer=kept.model_dump(mode="json"))
        return self._acted_on(kept, candidate)

    def _acted_on(self, kept: Kept, candidate: str) -> Kept:
        """Commit or revert, if asked to and if the working tree is still the one that was measured."""
        if not self.request.commit or kept.outcome not in ("keep", "discard"):
            return kept
        assert self.where.repo is not None
        now = self.bench.candidate.with_name("now")
        trees.export_candidate(self.where, now)
        if trees.identity(now) != candidate:
            left = " The working tree changed meanwhile and was left as it is."
            return kept.model_copy(update={"sentence": kept.sentence + left})
        if kept.outcome == "keep":
            commit = trees.commit(self.where.repo, f"Keep step {kept.step}: {kept.sentence.partition(': ')[2]}")
            return kept.model_copy(update={"commit": commit})
        trees.restore(self.where.repo)
        where = f" The candidate is in {kept.saved}." if kept.saved else ""
        return kept.model_copy(update={"sentence": f"{kept.sentence} Reverted.{where}"})


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _in_logs(pairs: Sequence[tuple[float, float]]) -> bool:
    return all(value > 0 for pair in pairs for value in pair)


def _difference(first: float, second: float) -> float:
    """The relative difference of two identical runs."""
    if first > 0 and second > 0:
        return math.log(first / second)
    return (first - second) / (max(abs(first), abs(second)) or 1.0)


def _differences(pairs: Sequence[tuple[float, float]], better: str) -> list[float]:
    """Relative differences, positive where the candidate is better: of logarithms unless a value is not positive."""
    sign = 1 if better == "lower" else -1
    if _in_logs(pairs):
        return [sign * math.log(incumbent / candidate) for incumbent, candidate in pairs]
    scale = statistics.median(abs(incumbent) for incumbent, _ in pairs) or 1.0
    return [sign * (incumbent - candidate) / scale for incumbent, candidate in pairs]


def _gain(difference: float, in_logs: bool) -> float | None:
    if not math.isfinite(difference):
        return None
    return math.expm1(difference) if in_logs else difference


def _sizes(mean: float, low: float, high: float, in_logs: bool) -> tuple[str, str]:
    """A difference and its interval in words: per cent, or times from twofold on."""
    word = "worse" if mean < 0 else "better"
    if in_logs and abs(mean) > math.log(2) and math.isfinite(low) and math.isfinite(high) and low * high > 0:
        ends = sorted(math.exp(abs(end)) for end in (low, high))
        return f"{math.exp(abs(mean)):.3g} times {word}", " to ".join(f"{end:.3g}" for end in ends)
    gains = [_gain(value, in_logs) or 0.0 for value in (mean, low, high)]
    return f"{_percent(abs(gains[0]))} {word}", f"{_signed(gains[1])} to {_signed(gains[2])} %"


def _usual(known: Sequence[float]) -> float | None:
    return math.sqrt(statistics.fmean(value * value for value in known)) if known else None


def _percent(value: float | None) -> str:
    share = 100 * (value or 0.0)
    return f"{share:.0f} %" if share >= 99.5 else f"{share:.2g} %"


def _name(text: str) -> str:
    """A metric as a sentence calls it: the first word of a pattern."""
    words = re.search(r"(?<!\\)[A-Za-z_][\w.-]*", text)
    return words[0] if words else "the metric"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{_percent(abs(value)).removesuffix(' %')}"


def _shown(name: str, value: float) -> str:
    if name in ("time", "cpu"):
        return f"{value:.4g} s" if value >= 0.1 else f"{1000 * value:.4g} ms"
    return f"{value / 1e6:.4g} MB" if name == "memory" else f"{value:.6g}"
