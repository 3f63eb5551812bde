"""Every candidate of the named targets against its baseline and the float64 reference, at the size of a CPU.

python agreement.py triton|torch TARGET...: the candidates with a Triton kernel, or the others. Prints problems by
candidate as JSON. Triton reads TRITON_INTERPRET when it is imported, so its candidates need a process of their own.
"""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites.records import Target, Variant

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = [REPOSITORY / "benchmarks", REPOSITORY / "labs"]
FILES = ExitStack()  # of inputs, until the process ends
atexit.register(FILES.close)
MODES = ("plain", "exact", "spikes", "zeros", "tiny", "constant")


@cache
def targets() -> list[Target]:
    """All shipped targets: found once for the files of tests that are written for each of them."""
    return suites.find_targets(ROOTS)


def mentions(path: str, word: str) -> bool:
    """True if a file's text has the word."""
    return word in Path(path).read_text("utf-8")


def few(values: Iterable[Any], names: list[str], costly: Container[str]) -> list[Any]:
    """Parameters of a test with those names; the costly ones are slow."""
    import pytest

    rows = zip(values, names, strict=True)
    return [pytest.param(value, id=name, marks=pytest.mark.slow if name in costly else ()) for value, name in rows]


class Agreement:
    """One target, loaded as the judge loads it."""

    def __init__(self, target: Target) -> None:
        import torch

        from aisp_mcp.judge.protocol.draws.rng import CallRng
        from aisp_mcp.judge.protocol.module_loader import load_spec
        from aisp_mcp.judge.verifier.inputs.bank import InputBank
        from aisp_mcp.judge.verifier.reference import ReferenceEvaluator

        torch.set_num_threads(1)  # as in the judge: threads that spin for each other stall on a loaded machine
        self.target = target
        self.rng = CallRng
        self.spec = load_spec(Path(target.path), "small")
        self.params = dict(self.spec.params(CallRng("cpu", 2, secret_statistics=False)))
        self.reference = ReferenceEvaluator(self.spec, self.params)
        self.bank = InputBank("cpu", self.reference)

    def inputs(self, seed: int, mode: str = "plain") -> dict[str, Any]:
        from aisp_mcp.bench import Host
        from aisp_mcp.judge.verifier.inputs.files import opened

        inputs = self.spec.inputs(self.rng("cpu", seed, mode))
        plain = {name: tensor.tensor if isinstance(tensor, Host) else tensor for name, tensor in inputs.items()}
        return FILES.enter_context(opened(plain))

    def runner(self, variant: Variant) -> Any:
        """The candidate's run with its prepared parameters bound."""
        from aisp_mcp.judge.pair import Pair
        from aisp_mcp.judge.protocol.module_loader import common_of, load_candidate

        pair = Pair(self.target.name, Path(self.target.path), variant.name, Path(variant.path))
        module = load_candidate(pair.compiled()[0].path, common_of(pair.baseline))
        prepare = getattr(module, "prepare", None)
        static = prepare(dict(self.params), self.inputs(3)) if prepare else self.params
        return lambda inputs: module.run(**inputs, **static)

    def problems(self, variant: Variant, modes: tuple[str, ...] = ("plain",)) -> Iterator[str]:
        """Faults of a candidate's outputs, layouts or treatment of its inputs."""
        return self.judged(self.runner(variant), modes)

    def judged(self, run: Any, modes: tuple[str, ...]) -> Iterator[str]:
        """The same of a function that takes inputs, with other inputs for each mode."""
        for seed, mode in enumerate(modes, 7):
            inputs = self.inputs(seed, mode)
            copies = {name: tensor if isinstance(tensor, str) else tensor.clone() for name, tensor in inputs.items()}
            outputs = self.named(run(inputs))
            changed = [
                name for name in copies if name not in self.spec.in_place and not same(inputs[name], copies[name])
            ]
            yield from (f"{mode}: the input {name} was changed" for name in changed)
            yield from (f"{mode}: {words}" for words in self._against(outputs, copies, seed, mode))

    def named(self, output: Any) -> list[tuple[str, Any]]:
        """The tensors of an output by name."""
        from aisp_mcp.judge.protocol.module_loader import flatten

        return flatten(output)

    def _against(self, outputs: list[tuple[str, Any]], inputs: dict[str, Any], seed: int, mode: str) -> Iterator[str]:
        from aisp_mcp.judge.verifier.checks import formats, quality
        from aisp_mcp.judge.verifier.checks.tolerance import adversarial_slack, compare, compare_steps

        again = {name: tensor if isinstance(tensor, str) else tensor.clone() for name, tensor in inputs.items()}
        baseline, reference = map(self.named, self.reference.both(inputs))
        if checked := quality.contract(self.spec):
            bare = (
                {name.removeprefix("out."): tensor for name, tensor in named}
                for named in (outputs, baseline, reference)
            )
            wrong = checked.check(self.bank, seed, mode, *bare)[1]
            yield from [wrong] if wrong else []
            return
        if self.spec.tolerance.format:
            exact = self.named(self.reference.rounded(again))
            rows = zip(outputs, reference, exact, strict=True)
            failures = (formats.compare(out, ref, own, self.spec.tolerance)[1] for (_, out), (_, ref), (_, own) in rows)
            yield from (wrong for wrong in failures if wrong)
            return
        for (name, out), (_, base), (_, ref) in zip(outputs, baseline, reference, strict=True):
            actual, expected = ((str(t.dtype), tuple(t.shape)) for t in (out, base))
            if actual != expected:
                yield f"{name} is {actual}, the baseline's {expected}"
            elif not self.spec.tolerance.stochastic:
                judge = compare_steps if name in self.spec.tolerance.per_step else compare
                slack = 1.0 if mode == "plain" else adversarial_slack(out.dtype)
                wrong = judge(out, base, ref, self.spec.tolerance, slack)[1]
                if wrong and judge is compare and out.is_floating_point():
                    allowed = self._allowed(name, out, seed, mode)
                    wrong = compare(out, base, ref, self.spec.tolerance, slack, allowed=allowed)[1]
                yield from [f"{name}: {wrong}"] if wrong else []

    def _allowed(self, name: str, out: Any, seed: int, mode: str) -> Any:
        """Error of each element that other orders of operations may have, as in the round checker."""
        from aisp_mcp.judge.verifier.checks.other_orders import other_orders

        names = [name for name, _ in self.named(self.reference.baseline(self.inputs(seed, mode)))]
        *_, (allowed, _) = other_orders(self.bank, seed, mode, str(out.dtype).removeprefix("torch."))
        return allowed[names.index(name)]


def same(value: Any, other: Any) -> bool:
    return value == other if isinstance(value, str) else bool((value == other).all())


def main(kind: str, names: list[str]) -> None:
    results = {}
    for target, variants in suites.resolve(ROOTS, names):
        agreement = Agreement(target)
        for variant in variants:
            if mentions(variant.path, "import triton") == (kind == "triton"):
                results[suites.full_name(target, variant)] = list(agreement.problems(variant))
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
