"""Judge the outputs of a function by a specification's contract, in this process, as a comparison would.

Inputs, reference and checks are the verifier's own; only the worker is missing. Use it only for trusted programs, such
as altered baselines: a candidate must run in a separate process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.candidate.outputs import ContractError, check_contract
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.module_loader import contract, flatten
from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier import requirements
from aisp_mcp.judge.verifier.checks.round_checker import POISON, RoundChecker
from aisp_mcp.judge.verifier.inputs.bank import InputBank, RoundInputs
from aisp_mcp.judge.verifier.inputs.files import opened
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator

PLAIN_CALLS = 8  # a comparison with the preset `default` checks several times as many

Program = Callable[..., Any]  # takes inputs and static tensors by name


@dataclass(frozen=True)
class Call:
    """The inputs of one call: their seed, and their kind as in protocol/draws/rng.py. battery: these decide whether a
    program is correct.
    """

    seed: int
    mode: str
    battery: bool = False


@dataclass(frozen=True)
class Judgement:
    """The contract's answer about one call. failure: None if the output was accepted. error: in units of the contract.
    difference: root-mean-square distance from the baseline's output as a share of that output. measures: as in
    RoundChecker's answer.
    """

    failure: str | None
    error: float = 0.0
    difference: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)


class Trial:
    """A specification with secret static tensors. The caller assigns numbers to programs."""

    def __init__(self, spec: Benchmark, seed: int = 1) -> None:
        import torch

        self.spec, self._seed = spec, seed
        params = dict(spec.params(CallRng("cpu", seed, secret_statistics=False)))
        self.bank = InputBank("cpu", ReferenceEvaluator(spec, params))
        self.bank.near = False  # the reference of a call is computed once and serves all programs
        inputs = self.bank.inputs(seed + 1, "plain")
        output = self.bank.reference.baseline(inputs)
        groups = (params, inputs, dict(flatten(output)))
        tensors = [tuple(contract(name, tensor) for name, tensor in group.items()) for group in groups]
        layout = Layout(tensors[0], tensors[1], tensors[2], capacity=1)
        self.layout = layout
        self.arena = Arena(torch.zeros(layout.arena_bytes, dtype=torch.uint8), layout)
        self._errors = requirements.baseline_errors(
            self.bank, *requirements.baseline_and_truth(self.bank, seed + 1, "plain")
        )
        self.kinds = requirements.kinds_with_an_answer(self.bank, seed + 3, output)[0]
        # File paths belong to this process, so the check for changed inputs skips them.
        self._arenas: dict[int, Arena] = {}
        self._checkers: dict[int, RoundChecker] = {}  # by program

    @property
    def params(self) -> dict[str, Any]:
        """The static tensors."""
        return self.bank.reference.params

    @contextmanager
    def example(self) -> Iterator[dict[str, Any]]:
        """Inputs and static tensors of a plain call, for a run whose output is not judged."""
        with opened(self.bank.inputs(self._seed + 2, "plain")) as given:
            yield {**given, **self.params}

    def judge(self, number: int, program: Program, call: Call) -> Judgement:
        """Run the program on a call's inputs and check its output. number: the program's."""
        import torch

        inputs = self.bank.inputs(call.seed, call.mode)
        self.arena.frames(1).fill_(POISON)
        torch.manual_seed(
            call.seed
        )  # so that random programs can be compared with the baseline on the same random numbers
        try:
            with opened(inputs) as given:
                output = flatten(program(**self._placed(given), **self.params))
            for (name, tensor), spec in zip(output, self.layout.outputs, strict=True):
                check_contract(name, tensor, spec, torch.device("cpu"), self.spec.layout == "strict")
        except ContractError as error:
            return Judgement(str(error))
        except Exception as error:
            return Judgement(f"raised {type(error).__name__}: {str(error)[:200]}")
        for target, (_, tensor) in zip(self.arena.outputs(0), output, strict=True):
            target.copy_(tensor)
        return self._checked(RoundInputs(number, call.seed, call.mode, 1, battery=call.battery))

    def _placed(self, given: dict[str, Any]) -> dict[str, Any]:
        """The inputs, copied into the arena; paths stay as they are."""
        targets = self.arena.inputs(0)
        for name, value in given.items():
            if not isinstance(value, str):
                targets[name].copy_(value)
        return {name: value if isinstance(value, str) else targets[name] for name, value in given.items()}

    def _checked(self, filled: RoundInputs) -> Judgement:
        self._arenas[filled.worker_id] = self.arena
        if filled.worker_id not in self._checkers:
            guard = Protections(outside=not self.layout.files)
            checker = RoundChecker(self.spec, self.layout, guard, self._arenas, {})
            checker.orders.note_coarse(self._errors)
            self._checkers[filled.worker_id] = checker
        answer = self._checkers[filled.worker_id].check(self.bank, self.arena, filled, [0])
        return Judgement(
            answer["failure"], answer["ratio"] or 0.0, self._difference(filled), answer.get("measures", {})
        )

    def _difference(self, filled: RoundInputs) -> float:
        """The largest difference of all outputs; for stochastic contracts with the same random numbers."""
        import torch

        inputs = self.bank.inputs(filled.seed, filled.mode)
        if self.spec.tolerance.stochastic:
            torch.manual_seed(filled.seed)
            baseline = self.bank.reference.once(inputs)
        else:
            baseline = self.bank.both(filled.seed, filled.mode, inputs)[0]
        named = zip(self.arena.outputs(0), flatten(baseline), strict=True)
        return max((_distance(out, base) for out, (_, base) in named), default=0.0)


def _distance(out: Any, base: Any) -> float:
    import torch

    if torch.equal(out, base):
        return 0.0
    kind = torch.complex128 if out.is_complex() else torch.float64
    out, base = (tensor.to(kind).nan_to_num(0.0, 0.0, 0.0) for tensor in (out, base))
    return float((out - base).abs().norm()) / max(float(base.abs().norm()), 1e-300)


def calls(seed: int, kinds: Sequence[str], plain: int = PLAIN_CALLS) -> Iterator[Call]:
    """Plain calls and one call of each of these other kinds, those that most programs fail first."""
    draw = random.Random(seed)
    modes = ["plain", *kinds, *["plain"] * (plain - 1)]
    return (Call(draw.getrandbits(48), mode) for mode in modes)
