"""KernelBench's own evaluation of one candidate, with the numbers of trials of its scripts.

python validation/foreign/kernelbench_eval.py CHECKOUT REFERENCE CANDIDATE: prints JSON with its findings. What the
evaluation imports for language models is left out.
"""

from __future__ import annotations

import json
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import torch

UNUSED = ("openai", "litellm", "dotenv", "requests", "together", "anthropic", "google", "datasets")
CORRECT_TRIALS, PERF_TRIALS = 5, 100  # scripts/run_and_check.py


class UnusedModules(MetaPathFinder, Loader):
    """Finds and makes modules that the evaluation imports and does not use."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The module of that name, if it is one of them."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module with any attribute."""
        module = MagicMock(name=spec.name)
        module.__path__ = []
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to do."""


def main() -> None:
    """Evaluate, and print the findings."""
    checkout, reference, candidate = map(Path, sys.argv[1:4])
    sys.path.insert(0, str(checkout / "src"))
    sys.meta_path.insert(0, UnusedModules())
    from kernelbench.eval import eval_kernel_against_ref

    found = eval_kernel_against_ref(
        reference.read_text(),
        candidate.read_text(),
        num_correct_trials=CORRECT_TRIALS,
        num_perf_trials=PERF_TRIALS,
        measure_performance=True,
        device=torch.device("cuda:0"),
    )
    facts = {"compiled": found.compiled, "correct": found.correctness}
    if found.runtime > 0 and found.ref_runtime > 0:
        facts |= {"ratio": found.ref_runtime / found.runtime}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
