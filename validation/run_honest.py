"""Judge honest alternatives of common operations many times: how many are accused, and whose verdict changes?

python validation/run_honest.py [--machines 10] [--runs 10] [--only NAME…] [--out FILE]

A machine is a secret seed: it fixes the battery that decides. A run is the battery's decision and the fresh draws of
the timed calls of a comparison. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import torch  # noqa: E402
from honest_operations import OPERATIONS, Operation  # noqa: E402

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.verifier.inputs.rng import MODES  # noqa: E402

FRESH_PLAIN = 12


def benchmark(operation: Operation) -> Benchmark:
    """The operation as a specification."""
    inputs, run, _ = operation
    body = {
        "inputs": lambda self, rng: inputs(rng),
        "run": lambda self, **tensors: run(*tensors.values()),
    }
    made: Benchmark = type("Operation", (Benchmark,), body)()
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.only or OPERATIONS:
        operation = OPERATIONS[name]
        trial = Trial(benchmark(operation))
        found: dict[str, Any] = {}
        for draw in range(args.runs):
            for mode in MODES:
                for number, (words, program) in enumerate(operation[2].items()):
                    call = Call(draw * 7919 + 13, mode)
                    judged = trial.judge(number, lambda **t: program(*t.values()), call)
                    key = f"{words} {mode}"
                    count, worst, first = found.get(key, (0, 0.0, None))
                    found[key] = (count + bool(judged.failure), max(worst, judged.error), first or judged.failure)
        for key, value in found.items():
            if value[0] or value[1] > 8:
                print(name, key, value, flush=True)


if __name__ == "__main__":
    main()
