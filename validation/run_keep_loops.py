"""Run loops of `aisp keep` on programs that were not written for it, and count false keeps and missed gains.

python validation/run_keep_loops.py --minbpe FOLDER --tinyexpr FOLDER [LOOP...] [--out results/cpu-keep-loops.json]

FOLDER: checkouts of karpathy/minbpe and codeplea/tinyexpr. Each loop applies fifty changes to a repository: copies (a
comment, or an option without effect), losses and gains; what `aisp keep --commit` keeps is changed next.
Afterwards every distinct state runs again, all in turns, and the truth of a step is the ratio of two medians.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.gate.keep import decide

State = dict[str, Any]
PLAN = ["copy"] * 24 + ["loss"] * 12 + ["gain"] * 14
AISP = str(Path(sys.executable).with_name("aisp"))
WORTH = 0.02

PREPARE = '''
"""The data and the evaluation: fixed."""
import numpy as np

draw = np.random.default_rng(7)
centres = draw.normal(size=(10, 24))
labels = draw.integers(0, 10, 3000)
points = centres[labels] + 1.6 * draw.normal(size=(3000, 24))
train, val = slice(0, 2000), slice(2000, 3000)


def loss(logits, wanted):
    logits = logits - logits.max(1, keepdims=True)
    return float(-(logits - np.log(np.exp(logits).sum(1, keepdims=True)))[np.arange(len(wanted)), wanted].mean())
'''
TRAIN = '''
"""Train a small network. {note}"""
import time
import numpy as np
from prepare import labels, loss, points, train, val

WIDTH, STEPS, RATE, BATCH = {width}, {steps}, {rate}, 64
begin, draw = time.time(), np.random.default_rng()
a, b = draw.normal(size=(24, WIDTH)) / 5, draw.normal(size=(WIDTH, 10)) / 10
x, y = points[train], labels[train]
for step in range(STEPS):
    rows = draw.integers(0, len(x), BATCH)
    hidden = np.tanh(x[rows] @ a)
    scores = np.exp(hidden @ b)
    scores /= scores.sum(1, keepdims=True)
    scores[np.arange(BATCH), y[rows]] -= 1
    back = (scores @ b.T) * (1 - hidden * hidden)
    b -= RATE * hidden.T @ scores / BATCH
    a -= RATE * x[rows].T @ back / BATCH
print("---")
print(f"val_loss:         {{loss(np.tanh(points[val] @ a) @ b, labels[val]):.6f}}")
print(f"training_seconds: {{time.time() - begin:.1f}}")
print(f"num_steps:        {{STEPS}}")
'''
TOKENS = '''
"""Tokens per second of processor time."""
import pathlib, time
from minbpe import BasicTokenizer

text = pathlib.Path("tests/taylorswift.txt").read_text("utf-8")
tokenizer = BasicTokenizer()
tokenizer.train(text[:1500], 256 + 20)
begin, count = time.process_time(), 0
for start in range(0, 8_000, 1000):
    count += len(tokenizer.encode(text[start : start + 1000]))
print("tokens:", count)
print("tokens_per_s:", round(count / (time.process_time() - begin), 1))
'''
ENCODE = "            ids = merge(ids, pair, idx)\n        return ids"
# A habit of slow code: statistics that nobody reads.
WASTE = """            ids = merge(ids, pair, idx)
            get_stats(ids[: len(ids) * {waste} // 100])  # {note}
        return ids"""


@dataclass(frozen=True)
class Program:
    """A repository whose files follow from a state. moves: a change of the state by its kind."""

    start: State
    files: Callable[[State, str], dict[str, str]]
    command: list[str]
    options: list[str]
    moves: dict[str, Callable[[State, random.Random], State]]
    metric: str
    better: str
    origin: str
    base: Path | None = None
    build: str | None = None


def training() -> Program:
    def files(state: State, note: str) -> dict[str, str]:
        return {"prepare.py": PREPARE, "train.py": TRAIN.format(note=note, **state)}

    def scaled(name: str, factor: float) -> Callable[[State, random.Random], State]:
        return lambda state, draw: {
            **state,
            name: round(state[name] * factor, 6 if name == "rate" else 0)
            if name == "rate"
            else int(state[name] * factor),
        }

    def gain(state: State, draw: random.Random) -> State:
        return scaled("rate", 1.4)(state, draw) if draw.random() < 0.5 else scaled("steps", 1.35)(state, draw)

    def loss(state: State, draw: random.Random) -> State:
        return scaled("rate", 0.75)(state, draw) if draw.random() < 0.5 else scaled("steps", 0.75)(state, draw)

    return Program(
        {"width": 24, "steps": 120, "rate": 0.02},
        files,
        [sys.executable, "train.py"],
        ["--metric", "val_loss: +([0-9.]+)", "--better", "lower", "--fixed", "prepare.py"],
        {"gain": gain, "loss": loss},
        r"val_loss: +([0-9.]+)",
        "lower",
        "own model of 24 hidden units in the form of karpathy/autoresearch",
    )


def tokenizer(folder: Path) -> Program:
    basic = (folder / "minbpe/basic.py").read_text("utf-8")
    assert ENCODE in basic

    def files(state: State, note: str) -> dict[str, str]:
        return {
            "minbpe/basic.py": basic.replace(ENCODE, WASTE.format(note=note, **state)),
            "minbpe/__init__.py": "from .basic import BasicTokenizer\n",
            "bench.py": TOKENS,
        }

    return Program(
        {"waste": 300},
        files,
        [sys.executable, "bench.py"],
        ["--metric", "tokens_per_s", "--better", "higher", "--fixed", "bench.py"],
        {
            "gain": lambda state, draw: {"waste": max(0, state["waste"] - draw.choice((40, 80, 120)))},
            "loss": lambda state, draw: {"waste": state["waste"] + draw.choice((40, 80, 120))},
        },
        r"tokens_per_s: ([0-9.]+)",
        "higher",
        "karpathy/minbpe @1acefe8, with a planted waste",
        folder,
    )


BUILD = "gcc $(cat FLAGS) -o calculate calculate.c tinyexpr.c -lm"
CALCULATE = """
#include <stdio.h>
#include "tinyexpr.h"

int main(void) {
    double a, sum = 0;
    te_variable variable = {"a", &a};
    for (int compile = 0; compile < 3000; ++compile) {
        te_expr *expression = te_compile("sqrt(a^1.5+a^2.5)+(a+5)*2-(1/(a+1)+2/(a+2))", &variable, 1, 0);
        for (int i = 0; i < 200; ++i) {
            a = i;
            sum += te_eval(expression);
        }
        te_free(expression);
    }
    printf("sum = %g\\n", sum);
}
"""
FLAGS = {
    "copy": ["-Wall", "-pipe", "-fno-common", "-DUNUSED", "-Wextra", "-std=gnu11"],
    "gain": ["-O1", "-O2", "-O3", "-march=native", "-fomit-frame-pointer", "-funroll-loops", "-flto"],
    "loss": ["-O0", "-Og", "-fno-inline", "-fsanitize=undefined", "-fstack-protector-all", "-fno-tree-vectorize"],
}


def flags(folder: Path) -> Program:
    def files(state: State, note: str) -> dict[str, str]:
        words = " ".join([*state["flags"], *(["-DNOTE" + re.sub(r"\W", "", note)] if note else [])])
        return {"FLAGS": words + "\n", "calculate.c": CALCULATE}

    def move(kind: str) -> Callable[[State, random.Random], State]:
        return lambda state, draw: {"flags": [*state["flags"], draw.choice(FLAGS[kind])]}

    return Program(
        {"flags": ["-O0"]},
        files,
        ["./calculate"],
        ["--metric", "cpu", "--build", BUILD, "--fixed", "calculate.c", "--require", "sum == 3.25687e+08"],
        {"gain": move("gain"), "loss": move("loss"), "copy": move("copy")},
        "cpu",
        "lower",
        "codeplea/tinyexpr @9907207: flags of gcc 12",
        folder,
        BUILD,
    )


def write(program: Program, folder: Path, state: State, note: str) -> None:
    for name, text in program.files(state, note).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


def begin(program: Program, folder: Path) -> None:
    if program.base:
        shutil.copytree(
            program.base, folder, ignore=shutil.ignore_patterns(".git", "test", "*.png"), dirs_exist_ok=True
        )
    (folder / ".gitignore").write_text("calculate\n__pycache__\n")
    write(program, folder, program.start, "")
    git(folder, "init", "-q")
    git(folder, "config", "user.email", "a@b")
    git(folder, "config", "user.name", "a")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "start")


def run(program: Program, folder: Path, seed: int, home: Path) -> list[dict[str, Any]]:
    """The steps, as the command answered."""
    draw, plan = random.Random(seed), PLAN[:]
    draw.shuffle(plan)
    state, rows = program.start, []
    begin(program, folder)
    for number, kind in enumerate(plan, 1):
        move = program.moves.get(kind)
        wanted = move(state, draw) if move else state
        write(program, folder, wanted, f"change {number}")
        started = time.monotonic()
        words = [AISP, "keep", *program.options, "--commit", "--runs", "30", "--json", "--", *program.command]
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "AISP_HOME": str(home)}
        )
        answer = json.loads(done.stdout)["result"]
        rows.append(
            {
                "kind": kind,
                "incumbent": state,
                "candidate": wanted,
                "outcome": answer["outcome"],
                "gain": answer["gain"],
                "low": answer["low"],
                "high": answer["high"],
                "pairs": answer["pairs"],
                "exit_code": done.returncode,
                "seconds": round(time.monotonic() - started, 2),
            }
        )
        print(number, kind, answer["sentence"], flush=True)
        if answer["outcome"] == "keep":
            state = wanted
        else:
            git(folder, "checkout", "-q", "--", ".")
    return rows


def truths(program: Program, rows: Sequence[dict[str, Any]], work: Path, rounds: int) -> dict[str, list[float]]:
    """Numbers of all distinct states, run in turns."""
    folders, values = {}, {}
    for row in rows:
        for state in (row["incumbent"], row["candidate"]):
            key = json.dumps(state)
            if key in folders:
                continue
            folder = work / f"state-{len(folders)}"
            folder.mkdir()
            begin(program, folder)
            write(program, folder, state, "")
            if program.build:
                subprocess.run(program.build, shell=True, cwd=folder, check=True)
            folders[key], values[key] = folder, list[float]()
    for number in range(-1, rounds):
        for key in random.sample(list(folders), len(folders)):
            value = one(program, folders[key])
            if number >= 0:
                values[key].append(value)
    return values


def one(program: Program, folder: Path) -> float:
    with (folder / "printed").open("wb") as out:
        process = subprocess.Popen(program.command, cwd=folder, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    if program.metric == "cpu":
        return used.ru_utime + used.ru_stime
    found = re.search(program.metric, (folder / "printed").read_text())
    assert found
    return float(found[1])


def summary(program: Program, rows: list[dict[str, Any]], values: dict[str, list[float]]) -> dict[str, Any]:
    """Counts; adds `truth`, the gain of a step as measured afterwards, to each row."""
    for row in rows:
        before, after = (statistics.median(values[json.dumps(row[side])]) for side in ("incumbent", "candidate"))
        row["truth"] = round((before / after if program.better == "lower" else after / before) - 1, 4)
    counts = Counter((row["kind"], row["outcome"]) for row in rows)
    better = [
        row for row in rows if row["truth"] >= WORTH and row["incumbent"] != row["candidate"] and row["kind"] != "copy"
    ]
    seconds = [row["seconds"] for row in rows]
    return {
        "origin": program.origin,
        "command": " ".join(
            ["aisp keep", *program.options, "--commit", "--runs 30", "--", *program.command[-2:]]
        ).replace(sys.executable, "python"),
        "outcomes": {f"{kind} {outcome}": count for (kind, outcome), count in sorted(counts.items())},
        "false_keeps": sum(row["outcome"] == "keep" and (row["kind"] == "copy" or row["truth"] <= 0) for row in rows),
        "gains_of_2_percent": len(better),
        "kept": sum(row["outcome"] == "keep" for row in better),
        "undecided": sum(row["outcome"] == "undecided" for row in better),
        "discarded": sum(row["outcome"] == "discard" for row in better),
        "seconds_per_step": {"median": statistics.median(seconds), "max": max(seconds)},
        "rows": rows,
    }


NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda draw: draw.gauss(0, 0.005),
    "two states, each half of the time": lambda draw: 0.005 * (draw.random() < 0.5),
    "rounded to its own size": lambda draw: 0.005 * round(draw.gauss(0, 1)),
    "two states, one of them 30 % of the time": lambda draw: 0.005 * (draw.random() < 0.3) + draw.gauss(0, 0.00025),
    "exponential": lambda draw: draw.expovariate(1 / 0.005),
    "normal, 5 % of runs ten times as far": lambda draw: draw.gauss(0, 0.005) + _far(draw),
    "normal, of a size that changes by 10 between steps": lambda draw: draw.gauss(0, 0.005),
}
SIZES = (0.3, 1.0, 3.0)  # of the noise of a step, in the last of these kinds


def _far(draw: random.Random) -> float:
    return abs(draw.gauss(0, 0.05)) if draw.random() < 0.05 else 0.0


def simulated(kind: str, loops: int, draw: random.Random) -> dict[str, float]:
    """Loops of 200 identical candidates, and candidates that are 2 % faster, by the decision of the real command."""

    def steps(count: int, gain: float) -> list[tuple[str, int]]:
        known, answers = [NOISE[kind](draw) - NOISE[kind](draw) for _ in range(decide.KNOWN)], []
        for number in range(1, count + 1):
            size = draw.choice(SIZES) if "changes" in kind else 1.0
            differences, outcome = list[float](), "undecided"
            while outcome == "undecided" and len(differences) < 40:
                differences.append(gain + size * (NOISE[kind](draw) - NOISE[kind](draw)))
                alpha = 0.01 * decide.share(number)
                outcome = decide.decide(differences, known[-decide.REMEMBERED :], alpha, math.log1p(WORTH))
            answers.append((outcome, len(differences)))
            known += [size * (NOISE[kind](draw) - NOISE[kind](draw))] if number % 4 == 0 else []
        return answers

    copies = [steps(200, 0.0) for _ in range(loops)]
    gains = [answer for _ in range(loops // 2) for answer in steps(50, math.log1p(WORTH))]
    every = [answer for loop in copies for answer in loop]
    return {
        "loops": loops,
        "loops_with_a_false_keep": sum(any(outcome == "keep" for outcome, _ in loop) for loop in copies),
        "pairs_of_copies": round(statistics.fmean(count for _, count in every), 1),
        "gains": len(gains),
        "kept": round(statistics.fmean(outcome == "keep" for outcome, _ in gains), 4),
        "undecided": round(statistics.fmean(outcome == "undecided" for outcome, _ in gains), 4),
        "pairs_of_gains": round(statistics.fmean(count for _, count in gains), 1),
    }


def main() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of numpy, in all programs
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", default=["training", "tokenizer", "flags"])
    parser.add_argument("--minbpe", type=Path)
    parser.add_argument("--tinyexpr", type=Path)
    parser.add_argument("--seed", type=int, default=63)
    parser.add_argument("--rounds", type=int, default=30, help="runs of each state afterwards")
    parser.add_argument("--simulated", type=int, metavar="LOOPS", help="simulate so many loops instead")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    makers: dict[str, Callable[[], Program]] = {
        "training": training,
        "tokenizer": lambda: tokenizer(options.minbpe),
        "flags": lambda: flags(options.tinyexpr),
    }
    if options.simulated:
        draw = random.Random(options.seed)
        found = {kind: simulated(kind, options.simulated, draw) for kind in NOISE}
        print(json.dumps(found, indent=1))
        record = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {"loops": {}}
        if options.out:
            options.out.write_text(json.dumps({**record, "simulated": found}, indent=1) + "\n", "utf-8")
        return
    for name in options.loops:
        program = makers[name]()
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work, "loop")
            folder.mkdir()
            rows = run(program, folder, options.seed, Path(work, "home"))
            found = summary(program, rows, truths(program, rows, Path(work), options.rounds))
        print(name, {key: value for key, value in found.items() if key != "rows"}, flush=True)
        if options.out:
            record = json.loads(options.out.read_text()) if options.out.is_file() else {"loops": {}}
            record["loops"][name] = found
            options.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
