"""Hold the judge to its promises: how often it errs, on simulated noise and on this very machine.

    python tools/calibrate.py simulate                 seconds to minutes, writes results/calibration-simulated.json
    python tools/calibrate.py real --runs 500 --busy   hours, adds to results/calibration-<device>.json
    python tools/calibrate.py show                     the tables of what is recorded

A real run measures a pair whose true difference is known, through the same door as any benchmark: both compute a
function that takes some 200 ns a number, the candidate of p per cent more or fewer numbers than the baseline. Runs
are added to what is recorded, so that a long calibration can be done in parts; nothing recorded is ever dropped. --busy
runs one spinning process at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import calibration_model

from aisp_mcp.judge import comparison as orchestrator
from aisp_mcp.judge.presets import PRESETS, Preset
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.statistics import incomplete_beta

DATA = Path(__file__).resolve().parent.parent / "results"
SPIN = "while True: pass"
USUAL = PRESETS["default"]
NEEDED = 2 / 3  # of the baseline's numbers: only these are part of the output, so that the rest can vary

# One call of a function that costs much and touches little: where a processor spends its time in an interpreter or on
# memory, processes of one program differ by per cent, depending on where it all happens to lie.
BASELINE = '''"""Hurwitz zeta of {numbers} pairs of numbers, of which the first {needed} are part of the output."""

import torch

from aisp_mcp.bench import Benchmark, Work


class Planted(Benchmark):
    numbers = {room}

    def inputs(self, rng):
        return {{"x": rng.randn(self.numbers), "q": rng.randn(self.numbers)}}

    def work(self):
        return Work(flops={numbers})

    def run(self, x, q):
        return torch.special.zeta(x[:{numbers}].abs() + 1.5, q[:{numbers}].abs() + 1)[:{needed}]

    def reference(self, x, q):
        return torch.special.zeta(x[:{needed}].abs() + 1.5, q[:{needed}].abs() + 1)
'''

CANDIDATE = '''"""The same of {numbers}."""

import torch


def run(x, q):
    return torch.special.zeta(x[:{numbers}].abs() + 1.5, q[:{numbers}].abs() + 1)[:{needed}]
'''


class Plan(NamedTuple):
    """Plan of one invocation. effects: planted differences in per cent, above zero is faster."""

    device: str
    runs: int
    replicates: int
    round_s: float
    palindromes: int
    elements: int
    effects: tuple[float, ...]
    busy: bool


def numbers_for(effect: float, elements: int) -> int:
    """Numbers of a candidate that is `effect` per cent faster (slower below zero) than a baseline with so many.

    Raises ValueError if that is not within a tenth of the effect, or leaves out numbers of the output.
    """
    numbers = round(elements / (1 + effect / 100))
    if effect and abs(elements / numbers - 1 - effect / 100) > abs(effect) / 1000:
        raise ValueError(f"{effect} % of {elements} numbers is too few numbers.")
    if numbers < NEEDED * elements:
        raise ValueError(f"{effect} % faster is more than there is to spare.")
    return numbers


def write_pairs(folder: Path, plan: Plan) -> dict[float, orchestrator.Pair]:
    """A baseline and one candidate per effect, as files."""
    baseline = folder / "baseline_planted.py"
    counts = {effect: numbers_for(effect, plan.elements) for effect in plan.effects}
    text = {"needed": int(NEEDED * plan.elements), "room": max(plan.elements, *counts.values())}
    baseline.write_text(BASELINE.format(numbers=plan.elements, **text))
    pairs = {}
    for index, (effect, numbers) in enumerate(counts.items()):
        name = f"v{index}"
        path = folder / f"optimized_planted_{name}.py"
        path.write_text(CANDIDATE.format(numbers=numbers, **text))
        pairs[effect] = orchestrator.Pair("calibration:planted", baseline, name, path)
    return pairs


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """One process that spins on a CPU for the length of the measurement, if enabled."""
    if not busy:
        yield
        return
    spinner = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


# --- real


def row(effect: float, plan: Plan, result: Comparison) -> dict[str, Any]:
    """Row of one run: enough to judge it again under any margin."""
    interval = result.interval
    return {
        "effect": effect,
        "busy": plan.busy,
        "replicates": plan.replicates,
        "round_s": plan.round_s,
        "palindromes": plan.palindromes,
        "elements": plan.elements,
        "verdict": result.verdict.value,
        "ratio": result.ratio,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "margin": result.margin,
        "noise_floor": result.noise_floor,
        "clock": result.clocks.used if result.clocks else None,
        "flags": sorted({flag.code for flag in result.flags}),
        "seconds": round(result.seconds, 3),
        "at": round(time.time()),
    }


def measure(plan: Plan, target: Path) -> None:
    """Run the plan; every run is on disk before the next one starts."""
    record = load(target)
    preset = Preset("calibration", plan.replicates, plan.round_s, plan.palindromes)
    with tempfile.TemporaryDirectory(prefix="aisp-calibrate-") as name, neighbour(plan.busy):
        folder = Path(name)
        pairs = write_pairs(folder, plan)
        for number in range(plan.runs):
            effect = plan.effects[number % len(plan.effects)]
            options = orchestrator.Options(preset, "default", plan.device, folder)
            result = orchestrator.compare(pairs[effect], options)
            if not isinstance(result, Comparison):
                raise SystemExit(f"Nothing was measured: {result}")
            record["runs"].append(row(effect, plan, result))
            save(target, record)
            print(f"{number + 1}/{plan.runs} {effect:+g} %: {result.sentence}", flush=True)


def load(target: Path) -> dict[str, Any]:
    """The record so far."""
    empty: dict[str, Any] = {"work": "zeta", "runs": []}
    return json.loads(target.read_text()) if target.exists() else empty


def save(target: Path, record: dict[str, Any]) -> None:
    """Replace the file in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    head = {key: value for key, value in record.items() if key != "runs"}
    lines = ",\n".join("  " + json.dumps(run) for run in record.get("runs", []))
    body = json.dumps(head, indent=1)[:-2]
    part.write_text(f'{body},\n "runs": [\n{lines}\n ]\n}}\n' if lines else json.dumps(record, indent=1) + "\n")
    os.replace(part, target)


# --- what is recorded, as tables


def without_margin(run: dict[str, Any]) -> bool:
    """True if a difference of any size would have been claimed: interval off 1, estimate beyond the noise floor."""
    if run["ratio"] is None or run["verdict"] in ("invalid", "incorrect"):
        return False
    beyond = max(run["ratio"], 1 / run["ratio"]) - 1 > run["noise_floor"]
    return bool(beyond and not run["low"] <= 1.0 <= run["high"])


def upper_bound(hits: int, total: int, level: float = 0.95) -> float:
    """Clopper-Pearson: the largest rate at which so few hits would still be seen in 1 - level of all cases."""
    if hits >= total:
        return 1.0
    low, high = hits / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        # P(X <= hits) for a binomial, as an incomplete beta function
        low, high = (middle, high) if incomplete_beta(total - hits, hits + 1, 1 - middle) > 1 - level else (low, middle)
    return high


def groups(runs: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Runs of the same conditions."""
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        key = run["busy"], run["replicates"], run["palindromes"], run["round_s"], run["effect"]
        by_key.setdefault(key, []).append(run)
    return dict(sorted(by_key.items()))


def show_real(record: dict[str, Any]) -> None:
    """Per condition: runs, claims with and without margin, their upper bounds, flags, seconds."""
    heads = ("busy", "replicates", "palindromes", "round", "planted", "runs")
    print("| " + " | ".join((*heads, "claims, any size", "claims, margin", "flagged", "median s")) + " |")
    print("|" + " --- |" * 10)
    for (busy, replicates, palindromes, round_s, effect), runs in groups(record["runs"]).items():
        n = len(runs)
        small = sum(without_margin(run) for run in runs)
        large = sum(run["verdict"] in ("faster", "slower") for run in runs)
        flagged = sum(run["verdict"] in ("invalid", "incorrect") for run in runs)
        seconds = sorted(run["seconds"] for run in runs)[n // 2]
        rates = [f"{100 * x / n:.1f} % (<= {100 * upper_bound(x, n):.1f})" for x in (small, large)]
        where = f"| {'yes' if busy else 'no'} | {replicates} | {palindromes} | {round_s * 1000:g} ms | {effect:+g} %"
        print(f"{where} | {n} | {rates[0]} | {rates[1]} | {flagged} | {seconds:.1f} |")


def show_simulated(record: dict[str, Any]) -> None:
    """Share of runs called different, in per cent."""
    print(f"{record['trials']} trials per row, sd between processes {100 * record['process_sd']:g} %")
    for key, extra in (("estimators", "replicates"), ("palindromes", "palindromes"), ("looks", "mean_replicates")):
        names: list[str] = list(record[key][0]["called_different"])
        print(f"\n| noise | {extra} | effect | " + " | ".join(names) + " |")
        print("| --- " * (3 + len(names)) + "|")
        for line in record[key]:
            rates = " | ".join(f"{100 * line['called_different'][name]:.1f}" for name in names)
            print(f"| {line['noise']} | {line[extra]} | {100 * line['effect']:g} % | {rates} |")
    print("\n| one process pair, noise | effect | called different |\n| --- | --- | --- |")
    for line in record["one_process_pair"]:
        print(f"| {line['noise']} | {100 * line['effect']:g} % | {100 * line['called_different']:.2f} |")
    print("\n| false alarms at nominal 5 % under drift | |\n| --- | --- |")
    for name, rate in record["design"].items():
        print(f"| {name} | {100 * rate:.1f} |")


# --- command line


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    simulate = commands.add_parser("simulate")
    simulate.add_argument("--trials", type=int, default=4000)
    real = commands.add_parser("real")
    real.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    real.add_argument("--runs", type=int, default=50)
    real.add_argument("--replicates", type=int, default=USUAL.replicates)
    real.add_argument("--round-s", type=float, default=USUAL.round_s)
    real.add_argument("--palindromes", type=int, default=USUAL.palindromes)
    real.add_argument("--elements", type=int, default=1500, help="numbers per call; take millions on a GPU")
    real.add_argument("--effects", type=float, nargs="+", default=[0.0], help="planted, in per cent; in turn")
    real.add_argument("--busy", action="store_true", help="while a neighbour spins on one CPU")
    commands.add_parser("show")
    for command in commands.choices.values():
        command.add_argument("--data", type=Path, default=DATA, help="folder of the records")
    return parser.parse_args()


def main() -> None:
    """Run one command."""
    options = arguments()
    simulated = options.data / "calibration-simulated.json"
    if options.command == "simulate":
        save(simulated, calibration_model.simulate(options.trials))
        show_simulated(load(simulated))
    elif options.command == "real":
        plan = Plan(
            device=options.device,
            runs=options.runs,
            replicates=options.replicates,
            round_s=options.round_s,
            palindromes=options.palindromes,
            elements=options.elements,
            effects=tuple(options.effects),
            busy=options.busy,
        )
        measure(plan, options.data / f"calibration-{plan.device}.json")
    else:
        for path in sorted(options.data.glob("calibration-*.json")):
            print(f"\n## {path.name}")
            (show_simulated if path == simulated else show_real)(load(path))


if __name__ == "__main__":
    main()
