"""Judge published solvers of AlgoTune, beside their published speed-ups.

python validation/run_algotune.py CHECKOUT --out results/cpu-algotune.json [--deck published|float32] [--seconds 1200]
    [--each 600] [--at-once 1 --cores 3] [--share 1] [--preset quick] [--recorded FILE...] [--page docs/algotune.md]

CHECKOUT: of oripress/AlgoTune, with AlgoTuneTasks, results and reports. Candidates and tasks are those that import
numpy and scipy alone. published: candidates with a published speed-up of at least 1.2, one of each task, then a second
one of each, in the order of hashes of their names. float32: candidates whose code names float32 where their task's does
not. Each is judged by `bench verify --format algotune` at the n that the suite publishes, or a share of it, and as many
of them as the time allows. A call goes on with what an earlier one left in OUT, which is written after
every candidate; RECORDED are records of other machines, whose rows are taken over. With --at-once, each candidate has
that many cores to itself. The page is written in the end.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import run_labelled

from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.records import Skip
from aisp_mcp.suites.adapters import algotune
from aisp_mcp.system import cpu
from aisp_mcp.validity import corpus

PACKAGES = {"numpy", "scipy", "AlgoTuneTasks", *sys.stdlib_module_names}
LONGEST = 160  # characters of a verdict in a table
REASONS = {"CHECKER_ACCEPTS": "the checker accepts wrong answers", "NO_ANSWER": "no answer in time"}
PLAIN_S = 8.0  # of timing without a judge
GAIN = 1.2  # smaller published speed-ups are within what another machine changes
NAMES = {  # of models in reports/agent_summary.json, where they are not those of its folders
    "Claude Opus 4": "claude-opus-4-20250514",
    "Claude Opus 4.1": "claude-opus-4-1-20250805",
    "R1": "deepseek-reasoner",
}


PLAIN = """
import importlib.util, inspect, json, statistics, sys, time, types

def loaded(path, name):
    sys.path.insert(0, path.rpartition("/")[0])
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

class Task:
    def __init__(self, n=None, **kwargs):
        self.n = n

base = types.ModuleType("AlgoTuneTasks.base")
base.Task, base.register_task = Task, lambda name: lambda task: task
sys.modules |= {"AlgoTuneTasks": types.ModuleType("AlgoTuneTasks"), "AlgoTuneTasks.base": base}
task_file, solver_file, n, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
classes = [each for each in vars(loaded(task_file, "task")).values() if inspect.isclass(each)]
task = next(each for each in classes if each is not Task and issubclass(each, Task))()
solver, times, end = loaded(solver_file, "solver").Solver(), ([], []), time.monotonic() + seconds
while time.monotonic() < end and len(times[0]) < 31:
    for kind, solve in enumerate((task.solve, solver.solve)):
        problem = task.generate_problem(n, random_seed=len(times[0]) + 1)
        begin = time.perf_counter()
        solve(problem)
        times[kind].append(time.perf_counter() - begin)
medians = [statistics.median(each[1:] or each) for each in times]
print(json.dumps(medians[0] / medians[1]))
"""


@dataclass(frozen=True)
class Candidate:
    """A solver and its task. published: its speed-up, in the suite's report; None if that has none."""

    task: Path
    solver: Path
    published: float | None

    @property
    def name(self) -> str:
        return f"{self.solver.parent.parent.name}/{self.task.stem}"


def candidates(checkout: Path) -> list[Candidate]:
    """The solvers that need numpy and scipy alone, and whose tasks do."""
    reports = json.loads((checkout / "reports" / "agent_summary.json").read_text("utf-8"))
    found = []
    for solver in sorted(checkout.glob("results/*/*/solver.py")):
        name = solver.parent.name
        task = checkout / "AlgoTuneTasks" / name / f"{name}.py"
        if task.is_file() and imports(task) <= PACKAGES and imports(solver) <= PACKAGES | beside(solver):
            model = solver.parent.parent.name
            ratio = reports.get(name, {}).get(NAMES.get(model, model.lower().replace(" ", "-")))
            ratio = ratio or reports.get(name, {}).get(model.lower().replace(" ", "-").replace("-(", " ("), {})
            number = re.fullmatch(r"[\d.]+", str(ratio.get("final_speedup", "")))
            found.append(Candidate(task, solver, float(number[0]) if number else None))
    return found


def imports(file: Path) -> set[str]:
    """The packages that a file imports; what cannot be parsed imports one that no file has."""
    try:
        nodes = [*ast.walk(ast.parse(source(file)))]
    except SyntaxError:
        return {"-"}
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def beside(solver: Path) -> set[str]:
    """Modules next to a solver."""
    return {file.stem for file in solver.parent.glob("*.py")}


def deck(every: list[Candidate], name: str) -> list[Candidate]:
    """Those of a deck, the tasks in turns."""
    if name == "float32":
        named = run_labelled.names_float32
        own = [each for each in every if named(source(each.solver)) and not named(source(each.task))]
    else:
        own = [each for each in every if each.published and each.published >= GAIN]
    turns, ranked = Counter[Path](), list[tuple[int, Candidate]]()
    for each in sorted(own, key=lambda each: hashlib.sha256(each.name.encode()).hexdigest()):
        turns[each.task] += 1
        ranked.append((turns[each.task], each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def source(file: Path) -> str:
    """The text of a file."""
    return file.read_text("utf-8", "replace")


PAGE = """# Published solvers of AlgoTune, judged

[AlgoTune](adapters.md#algotune) publishes solvers of language models with their speed-ups.
`validation/run_algotune.py` judges a sample of them by `aisp bench verify --format algotune`, with the suite's own
checkers, and wrote this page and [the record](../results/cpu-algotune.json), which has every row.
Candidates and tasks are those that import numpy and scipy alone. A share is followed by its interval of Wilson at 95 %.

Of the suite's {tasks} tasks, with {solvers} solvers, {usable} could be judged with the packages of the machine that
wrote this page. The others are skipped with the name of what they import: {missing}.

## Published speed-ups of at least {gain}

One solver of each task, then second ones. A verdict agrees if it is *faster*; *inconclusive* has no sign. Where it is
not faster, *without a judge* is the ratio of medians of calls in turns, in one process on the same machine.

| machine | judged | correct | faster | same or slower | inconclusive | faster of those with a sign |
| --- | --- | --- | --- | --- | --- | --- |
{signs}

{contrary}
Not judged: {refused}.

## float32 in place of float64

Solvers whose code names float32, where their task's does not, at {share} of the published n: precision does not depend
on it. *float32* and *digits* are what the verdict's sentence says of answers that the suite's checker accepted.

| solver | published | verdict | the sentence names |
| --- | --- | --- | --- |
{precision}

{without}
"""


def adapted(checkout: Path) -> dict[str, Any]:
    """Numbers of tasks and solvers, of tasks that can be judged here, and of those skipped, by what is missing."""
    problems = algotune.find(checkout, [], {})
    with tempfile.TemporaryDirectory() as folder:
        left = algotune.requests(problems, Path(folder))[1]
    missing = Counter(each.missing.partition(", which")[0] for each in left if isinstance(each, Skip))
    solvers = sum(len(problem.candidates) for problem in problems)
    usable = len(problems) - sum(missing.values())
    return {"tasks": len(problems), "solvers": solvers, "usable": usable, "missing": dict(missing.most_common())}


def page(record: dict[str, Any]) -> str:
    """The page of a record."""
    rows, suite = record["rows"], record["suite"]
    published = [row for row in rows if row["deck"] == "published"]
    machines = dict.fromkeys(map(machine, published))
    precise = [row for row in rows if row["deck"] == "float32"]
    judged = sorted((row for row in precise if row.get("verdict")), key=lambda row: str(row["name"]))
    text = [row for row in judged if not named(row)]
    left = [f"{row['name']}: {row['refusal']['message']}" for row in precise if not row.get("verdict")]
    return PAGE.format(
        gain=GAIN,
        **{name: suite[name] for name in ("tasks", "solvers", "usable")},
        missing=", ".join(f"{name} ({count})" for name, count in suite["missing"].items()),
        signs="\n".join(signs(each, [row for row in published if machine(row) == each]) for each in machines),
        contrary=contrary(published),
        refused=reasons(published),
        share=f"{100 * min((row['share'] for row in precise), default=1.0):.0f} %",
        precision="\n".join(
            f"| {row['name']} | {row['published'] or '–'} | {row['verdict']} | {named(row) or 'nothing'} |"
            for row in judged
        ),
        without=f"{len(judged) - len(text)} of {len(judged)} are named. {other(text)}"
        f"Not judged: {'; '.join(left) or 'none'}.",
    )


def other(rows: list[dict[str, Any]]) -> str:
    """A sentence on the answers whose precision is not named; empty if none is exact."""
    exact = sum(row.get("measures", {}).get("apart", 1.0) < run_labelled.ROUNDING for row in rows)
    words = "differ from the baseline's by rounding in float64 at most: float32 is in code that is not reached"
    return f"The answers of {exact} others {words}. " if exact else ""


def machine(row: dict[str, Any]) -> str:
    """The machine of a row, the preset, and the share of the published n."""
    return f"{row['device']}, `{row.get('preset', 'quick')}`, at {100 * row['share']:.0f} % of n"


def signs(where: str, rows: list[dict[str, Any]]) -> str:
    """The line of a machine."""
    verdicts = Counter(row["verdict"] for row in rows if row.get("verdict"))
    right = sum(verdicts.values()) - verdicts["incorrect"] - verdicts["invalid"]
    other = verdicts["same"] + verdicts["slower"]
    agreed = run_labelled.share(verdicts["faster"], verdicts["faster"] + other)
    cells = [where, sum(verdicts.values()), right, verdicts["faster"], other, verdicts["inconclusive"], agreed]
    return f"| {' | '.join(map(str, cells))} |"


def contrary(rows: list[dict[str, Any]]) -> str:
    """The table of those that are not faster here; empty without any."""
    others = [row for row in rows if row.get("verdict") not in (None, "faster")]
    lines = []
    for row in others:
        apart = f"{row['plain']:.2f}" if row.get("plain") else "–"
        lines.append(f"| {row['name']} | {row['published']} | {apart} | {cut(row['sentence'])} |")
    head = ["| not faster here | published | without a judge | verdict |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *lines, ""]) if lines else ""


def reasons(rows: list[dict[str, Any]]) -> str:
    """Numbers of refused solvers by reason."""
    counts = Counter(
        REASONS.get(row["refusal"]["code"], row["refusal"]["code"]) for row in rows if not row.get("verdict")
    )
    return ", ".join(f"{count} ({reason})" for reason, count in counts.most_common()) or "none"


def named(row: dict[str, Any]) -> str:
    """The precision that the verdict's sentence names, or its words on wrong answers; empty if it names nothing."""
    if row["verdict"] in ("incorrect", "invalid"):
        return cut(row["sentence"])
    digits = re.search(r"agree with the baseline's to (\d+) digits", row["sentence"])
    return "float32" if "numbers of its answers are of float32" in row["sentence"] else digits[0] if digits else ""


def cut(sentence: str) -> str:
    """The beginning of a sentence, for a table."""
    first = sentence.split("; answers judged by")[0].replace("|", "/")
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 1]}…"


def main() -> None:
    """Judge, and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deck", choices=("published", "float32"), default="published")
    parser.add_argument("--seconds", type=float, default=1200.0, help="start none after that")
    parser.add_argument("--each", type=float, default=600.0, help="seconds that one candidate may take")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--cores", type=int, default=0, help="of each candidate; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of the n that the suite publishes")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quick")
    parser.add_argument("--recorded", type=Path, nargs="*", default=[])
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, run_labelled.end_all)
    device = f"{cpu.read().model}, {os.cpu_count()} cores"
    files = [options.out, *options.recorded] if options.out.is_file() else options.recorded
    rows = [row for file in files for row in json.loads(file.read_text("utf-8"))["rows"]]
    rows = [*{(row["deck"], row["name"], row["device"]): row for row in rows}.values()]
    known = {row["name"] for row in rows if (row["deck"], row["device"]) == (options.deck, device)}
    chosen = [each for each in deck(candidates(options.checkout), options.deck) if each.name not in known]
    sizes = json.loads((options.checkout / "reports" / "generation.json").read_text("utf-8"))
    about: dict[str, Any] = {"what": "published solvers of AlgoTune", "date": time.strftime("%Y-%m-%d")}
    about["suite"] = adapted(options.checkout)
    free, cores = SimpleQueue[set[int]](), sorted(os.sched_getaffinity(0))
    size = options.cores or len(cores)
    for lane in range(options.at_once):
        free.put({*cores[lane * size : (lane + 1) * size]} or {*cores})

    def judged(each: Candidate) -> dict[str, Any]:
        n = max(1, round(options.share * sizes[each.task.stem]["n"]))
        words = [str(each.task), str(each.solver), "--format", "algotune", "--set", f"n={n}", "--evidence"]
        row = {"deck": options.deck, "name": each.name, "n": n, "share": options.share, "device": device}
        row["preset"] = options.preset
        found = run_labelled.verified(words, options.each, options.preset)
        if found.get("verdict") not in (None, "faster", "incorrect", "invalid"):
            found["plain"] = plain(each, n)
        return {**row, "published": each.published, **found}

    with ThreadPoolExecutor(options.at_once, initializer=lambda: os.sched_setaffinity(0, free.get())) as threads:
        begun = set[Future[dict[str, Any]]]()
        waiting = takewhile_time(chosen, time.monotonic() + options.seconds)
        while True:
            begun |= {threads.submit(judged, each) for each in islice(waiting, options.at_once - len(begun))}
            if not begun:
                break
            done, begun = wait(begun, return_when=FIRST_COMPLETED)
            for row in [each.result() for each in done]:
                rows.append(row)
                why = row.get("sentence") or row["refusal"]
                print(row["name"], row["published"], row.get("ratio"), row["seconds"], why, flush=True)
            corpus.keep(options.out, {**about, "rows": rows})
    corpus.keep(options.out, {**about, "rows": rows})
    if options.page:
        options.page.write_text(page({**about, "rows": rows}), "utf-8")


def plain(each: Candidate, n: int) -> float | None:
    """Ratio of the medians of calls in turns, each with a new problem, in one process without a judge; None if it
    fails.
    """
    words = [sys.executable, "-c", PLAIN, str(each.task), str(each.solver), str(n), str(PLAIN_S)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10 * PLAIN_S)
        return float(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def takewhile_time(chosen: list[Candidate], ends_at: float) -> Iterator[Candidate]:
    """The candidates, until the time is over."""
    for each in chosen:
        if time.monotonic() > ends_at:
            return
        yield each


if __name__ == "__main__":
    main()
