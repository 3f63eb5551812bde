"""Judge honest alternatives of common operations many times: how many are accused, and whose verdict changes?

python validation/run_honest.py [--machines 10] [--runs 10] [--plain 12] [--adversarial 3]
    [--family seen|unseen|wrong|foreign|foreign-wrong] [--values] [--only NAME…] [--out FILE]

A machine is a secret seed: it fixes the battery that decides. A run is the battery's decision and the fresh draws of
the timed calls of a comparison. Nothing is timed. --values: as results of any form, which no tensors of fixed shapes
hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from honest_foreign import FOREIGN, FOREIGN_WRONG, MISSING
from honest_forms import FORMS
from honest_operations import OPERATIONS
from honest_points import POINTS
from honest_programs import Operation, Program
from honest_types import TYPES
from honest_unseen import UNSEEN, UNSEEN_WRONG

from aisp_mcp.bench import Answers, Benchmark
from aisp_mcp.judge.candidate import calling
from aisp_mcp.judge.mutants.trial import Call, Trial
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.draws.rng import battery as drawn_battery

SEEN = OPERATIONS | FORMS | POINTS | TYPES
FAMILIES = {
    "seen": SEEN,
    "unseen": UNSEEN,
    "wrong": UNSEEN_WRONG,
    "foreign": FOREIGN,
    "foreign-wrong": FOREIGN_WRONG,
}
FRESH_PLAIN, FRESH_MODES = 12, 3  # calls of a run; --plain and --adversarial give others


def as_values(operation: Operation) -> Operation:
    """The operation with frames of Python values as results."""
    inputs, run, others = operation

    def framed(program: Program) -> Program:
        steps = calling.ValueSteps(calling.arguments, program, is_copied=False)
        return lambda *given: steps.whole(*given)

    return inputs, framed(run), {name: framed(program) for name, program in others.items()}


def benchmark(operation: Operation, *, has_values: bool = False) -> Benchmark:
    """The operation as a specification."""
    inputs, run, _ = operation
    body = {
        "inputs": lambda self, rng: inputs(rng),
        "run": lambda self, **tensors: run(*tensors.values()),
        "answers": Answers() if has_values else None,
    }
    made: Benchmark = type("Operation", (Benchmark,), body)()
    return made


def battery(trial: Trial, draw: random.Random) -> list[Call]:
    """The calls that decide on this machine."""
    kinds = ("plain", *trial.kinds)
    calls = drawn_battery(trial.layout.frame, 0.0, draw)
    return [Call(seed, mode, battery=True) for mode, seed in calls if mode in kinds]


def fresh(draw: random.Random, kinds: list[str], plain: int, adversarial: int) -> list[Call]:
    """The other calls that a comparison checks."""
    modes = ["plain"] * plain + draw.sample(kinds, min(adversarial, len(kinds)))
    return [Call(draw.getrandbits(48), mode) for mode in modes]


def judged(
    operation: Operation, machine: int, runs: int, plain: int, adversarial: int, *, has_values: bool = False
) -> dict[str, Any]:
    """By alternative: the message by which the battery refused it or None, the runs whose fresh calls did, the worst
    error, and the first message of these.
    """
    calling.VALUES.update(capacity=0)
    if has_values:
        operation = as_values(operation)
        calling.VALUES.update(capacity=2 * len(operation[1](*operation[0](CallRng("cpu", machine)).values())))
    trial, draw = Trial(benchmark(operation, has_values=has_values)), random.Random(machine)
    found: dict[str, Any] = {}
    decided, others = battery(trial, draw), [fresh(draw, trial.kinds, plain, adversarial) for _ in range(runs)]
    for number, calls in enumerate([decided, *others]):
        failed = dict[str, str]()
        for call in calls:
            for at, (name, program) in enumerate(operation[2].items()):
                about = found.setdefault(name, {"battery": None, "runs": 0, "error": 0.0, "message": None})
                outcome = trial.judge(at, lambda program=program, **given: program(*given.values()), call)
                about["error"] = max(about["error"], outcome.error)
                if outcome.failure:
                    failed.setdefault(name, outcome.failure)
        for name, message in failed.items():
            if number == 0:
                found[name]["battery"] = message
            else:
                found[name]["runs"] += 1
                found[name]["message"] = found[name]["message"] or message
    return found


def record(name: str, alternatives: dict[str, list[dict[str, Any]]], runs: int) -> Iterator[dict[str, Any]]:
    """One row for each alternative."""
    for words, machines in alternatives.items():
        accused = sum(runs if one["battery"] else one["runs"] for one in machines)
        yield {
            "operation": name,
            "alternative": words,
            "runs": runs * len(machines),
            "accused": accused,
            "flipped": sum(0 < one["runs"] < runs and not one["battery"] for one in machines),
            "error": round(max(one["error"] for one in machines), 2),
            "message": next((m for one in machines if (m := one["battery"] or one["message"])), None),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--plain", type=int, default=FRESH_PLAIN)
    parser.add_argument("--adversarial", type=int, default=FRESH_MODES)
    parser.add_argument(
        "--family", choices=FAMILIES, default="seen", help="wrong, foreign-wrong: all are to be accused"
    )
    parser.add_argument("--values", action="store_true", help="compare results as any Python values")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    begin, rows = time.monotonic(), list[dict[str, Any]]()
    operations = FAMILIES[args.family]
    for name in args.only or operations:
        alternatives: dict[str, list[dict[str, Any]]] = {}
        for machine in range(args.machines):
            for words, about in judged(
                operations[name], machine, args.runs, args.plain, args.adversarial, has_values=args.values
            ).items():
                alternatives.setdefault(words, []).append(about)
        for row in record(name, alternatives, args.runs):
            rows.append(row)
            print(json.dumps(row), flush=True)
    found = {
        "what": "honest alternatives of common operations, judged without timing (validation/run_honest.py)",
        "date": date.today().isoformat(),
        "device": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - begin, 1),
        "packages_missing": MISSING,
        "machines": args.machines,
        "fresh_calls_of_a_run": {"plain": args.plain, "adversarial": args.adversarial},
        "alternatives": len(rows),
        "runs": sum(row["runs"] for row in rows),
        "accused": sum(row["accused"] for row in rows),
        "flipped": sum(row["flipped"] for row in rows),
        "rows": rows,
    }
    print(json.dumps({key: value for key, value in found.items() if key != "rows"}))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
