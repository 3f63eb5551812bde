"""Checks of a finished round that all kinds of contracts share: guards and poison of every call, unchanged inputs, and
which calls are compared with what. contracts.py judges the outputs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.evidence import merge_measures
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import CheckAnswer
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.roles import baseline_of
from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier.checks.contracts import CallCheck, ExpectedOutputs, contract_of
from aisp_mcp.judge.verifier.checks.other_orders import OtherOrders
from aisp_mcp.judge.verifier.checks.tolerance import same_bits
from aisp_mcp.judge.verifier.inputs.bank import CheckedCall, InputBank, RoundInputs
from aisp_mcp.judge.verifier.inputs.files import InputFiles, is_file

# Share of the calls that a baseline's worker computed, too, whose outputs the verifier computes itself. Chosen: a wrong
# worker that agrees with its baseline stays unseen in 40 calls once in 100,000 times (0.75^40).
RECOMPUTED_SHARE = 0.25
POISON = 0xFF  # NaN in every floating-point format, -1 in every signed integer


class RoundChecker:
    """Compares a worker's outputs with the specification.

    arenas, rounds: the verifier's, by worker. last_only: workers compute on copies of the inputs, so only the last call
    shows what they did to them.
    """

    def __init__(
        self,
        spec: Benchmark,
        layout: Layout,
        protections: Protections,
        arenas: dict[int, Arena],
        rounds: dict[int, RoundInputs],
        last_only: bool = False,
        files: InputFiles | None = None,
    ) -> None:
        self._spec, self._layout, self._protections = spec, layout, protections
        self._arenas, self._rounds, self._last_only = arenas, rounds, last_only
        self._files = files or InputFiles({})
        self.orders = OtherOrders(spec.tolerance.error_ratio)
        self._contract = contract_of(spec, layout, self.orders)
        self._is_decided = False  # True once the battery has been checked
        self._plain_calls = Counter[int]()  # on plain inputs, by worker
        self._with_nan = set[str]()  # outputs in which the baseline has NaN as well

    def check(
        self,
        bank: InputBank,
        arena: Arena,
        round_inputs: RoundInputs,
        sample: list[int],
        stored: list[int] | None = None,
    ) -> CheckAnswer:
        """Check the guards of every call of the round, the poison of the stored calls, and all elements of the sampled
        calls. stored: calls whose outputs are in the arena; None for all.

        After a worker's first comparison, outputs that hardly differ from the baseline's are accepted without a
        reference (see near()); the ratio is the worst of the others.
        """
        if found := self._damage(bank, arena, round_inputs, stored):
            return CheckAnswer(failure=found.failure, code=found.code, checked=0, ratio=None)
        sample, self._is_decided = sample if self._protections.values else [], self._is_decided or round_inputs.battery
        worst, measures, edge = 0.0, dict[str, float](), None
        last = CheckedCall(bank, arena, round_inputs, round_inputs.count - 1)
        if self._last_only and sample and last.number not in sample and (message := self._changed(last, last.inputs())):
            return CheckAnswer(failure=f"call {last.number}: {message}", code="input_mutated", checked=0, ratio=0.0)
        for done, number in enumerate(sample):
            outcome = self._check_call(self._call(bank, arena, round_inputs, number))
            worst = max(worst, outcome.ratio)
            if outcome.failure:
                failure = f"call {number}: {outcome.failure}"
                return CheckAnswer(failure=failure, code=outcome.code, checked=done + 1, ratio=outcome.ratio)
            merge_measures(measures, outcome.measures)
            edge = max(filter(None, (edge, outcome.edge)), default=None)
        bank.known = None if self._layout.tight else bank.known  # it leaves no memory for the next round
        answer = CheckAnswer(failure=None, code=None, checked=len(sample), ratio=worst, measures=measures)
        if edge:
            answer["edge"] = edge
        return answer

    def _call(self, bank: InputBank, arena: Arena, filled: RoundInputs, number: int) -> CheckedCall:
        self._plain_calls[filled.worker_id] += filled.mode == "plain"
        has_leeway = self._is_decided and not filled.battery
        return CheckedCall(bank, arena, filled, number, self._plain_calls[filled.worker_id], has_leeway)

    def _damage(self, bank: InputBank, arena: Arena, filled: RoundInputs, stored: list[int] | None) -> CallCheck | None:
        """Check the guards of every call of the round, and the poison of all stored ones on plain inputs, sampled or
        not. Other inputs can lead an honest program to NaN, with any bits: there the comparison of values decides.
        """
        count, calls = filled.count, [*range(filled.count)] if stored is None else stored
        is_poisoned = self._protections.poison and not self._spec.tolerance.nan and filled.mode == "plain"
        for part in arena.parts:
            if self._protections.outside and (call := broken_guard(part, count)) is not None:
                return CallCheck(0.0, "out_of_bounds", f"call {call}: something was written outside the output")
            while is_poisoned and (found := left_poison(part, count, calls, self._with_nan)):
                number, name = found
                if not self._is_nan(CheckedCall(bank, arena, filled, number), name):
                    return CallCheck(
                        0.0, "incorrect_unwritten", f"call {number}: an element of {name} was never written"
                    )
                self._with_nan.add(name)
        return None

    def _is_nan(self, call: CheckedCall, name: str) -> bool:
        """Return True if the baseline's own output of that name has NaN: torch.maximum gives it the poison's bits."""
        outputs = call.bank.baseline(call.inputs())
        index = [spec.name for spec in self._layout.outputs].index(name)
        return bool(outputs[index].isnan().any())

    def _check_call(self, call: CheckedCall) -> CallCheck:
        bank = call.bank
        if call.seed not in bank.hidden and not bank.reference.answers_in_inputs and self._near_baseline(call):
            return CallCheck()
        inputs = call.inputs()
        if message := self._changed(call, inputs):
            return CallCheck(0.0, "input_mutated", message)
        if not self._contract.needs_reference:
            return self._by_baseline(call, inputs)
        if self._may_be_near(call):
            if self._contract.near(call, bank.hidden.get(call.seed) or bank.baseline(inputs)):
                return CallCheck()
            bank.near = bank.near and not call.is_plain
            inputs = call.inputs()  # a baseline may use them up
        call.round.forget()  # the reference needs the memory
        baseline, reference = (
            [tensor for _, tensor in flatten(output)] for output in bank.both(call.seed, call.mode, inputs)
        )
        del inputs  # large ones leave too little memory for the errors
        is_seen = not self._last_only or call.number == call.round.count - 1
        left = self._inputs_left(call) if is_seen and bank.left else None
        return self._contract.compare(call, ExpectedOutputs(baseline, reference, left))

    def _by_baseline(self, call: CheckedCall, inputs: dict[str, Any]) -> CallCheck:
        """Judge by the baseline's outputs alone, which are computed once, on inputs that are drawn once."""
        bank = call.bank
        if (known := bank.truth(call.seed, call.mode)) is None:
            output = bank.reference.once(inputs)
            known = bank.remember(call.seed, call.mode, (output, output))
            inputs = call.inputs() if self._spec.in_place else inputs
        baseline = [tensor for _, tensor in flatten(known[0])]
        if call.round.worker_id in bank.compared and self._contract.near(call, baseline):
            return CallCheck()
        return self._contract.compare(call, ExpectedOutputs(baseline, baseline, None, inputs))

    def _may_be_near(self, call: CheckedCall) -> bool:
        """Return True if an output near the baseline's needs no reference: none does once its worker's output on plain
        inputs was compared with it. Further plain outputs of a program that was not near are hardly near either.
        """
        bank = call.bank
        if bank.reference.answers_in_inputs or call.round.worker_id not in bank.compared:
            return False
        if bank.truth(call.seed, call.mode):
            return False
        return bank.near or not call.is_plain

    def _changed(self, call: CheckedCall, inputs: dict[str, Any]) -> str | None:
        """Message about the first input that a call changed without permission."""
        for name, tensor in self._inputs_left(call).items():
            if name in self._spec.in_place or not self._protections.outside:
                continue
            value = inputs[name]
            if is_file(value):
                unchanged = self._files.is_kept(call.round.worker_id, call.number, name, tensor, value)
            else:
                unchanged = same_bits(tensor, value.to(tensor.device))
            if not unchanged:
                return f"input '{name}' was changed; the contract does not allow it"
        return None

    def _inputs_left(self, call: CheckedCall) -> dict[str, Any]:
        """Inputs of a call as its worker left them."""
        arena = self._arenas[call.round.worker_id]
        if self._layout.tight:  # of which only the outputs were copied
            return arena.inputs(call.number)
        return {**call.arena.inputs(call.number), **arena.host_inputs(call.number)}

    def _near_baseline(self, call: CheckedCall) -> bool:
        """Accept outputs near those that the baseline's worker computed from the same seed and inputs. This comparison
        is cheap and settles most calls. For some calls drawn at random, and for all that differ, the verifier computes
        the outputs itself, so it need not trust that worker's memory.
        """
        worker, baseline, bank = call.round.worker_id, baseline_of(call.round.worker_id), call.bank
        same = None if self._layout.tight else self._rounds.get(baseline)  # or the worker's outputs are in its memory
        if same is None or same.staged or (same.seed, same.mode) != (call.round.seed, "plain"):
            return False
        if call.number >= same.count or not bank.near:
            return False
        if not {baseline, worker} <= bank.compared or random.random() < RECOMPUTED_SHARE:
            return False
        files, arena = self._layout.files, self._arenas[baseline]
        if not all(self._files.are_same(worker, baseline, call.number, name) for name in files):
            return False
        inputs, baseline_inputs = self._inputs_left(call), arena.inputs(call.number)
        unchanged = inputs.keys() - {*files, *self._spec.in_place}
        return all(same_bits(inputs[name], baseline_inputs[name]) for name in unchanged) and (
            self._contract.near(call, arena.outputs(call.number))
        )


def broken_guard(arena: Arena, count: int) -> int | None:
    """The first of `count` calls after which a guard around an output has changed."""
    frames = arena.frames(count)
    for offset, size in arena.layout.frame_guards():
        broken = (frames[:, offset : offset + size] != POISON).any(1)
        if bool(broken.any()):
            return int(broken.int().argmax())
    return None


def left_poison(arena: Arena, count: int, calls: list[int], but: Container[str] = ()) -> tuple[int, str] | None:
    """The first of these calls, and the name of the output, with a floating-point element that was never written. but:
    outputs that are not searched.
    """
    import torch

    for spec, offset in arena.layout.frame_outputs() if calls else ():
        if spec.name in but:
            continue
        if spec.dtype.startswith(("float", "bfloat", "complex")) and spec.nbytes:
            rows = _rows(arena.frames(count)[:, offset : offset + spec.nbytes], calls)
            left = torch.cat([is_poison(part, spec.dtype, spec.itemsize) for part in rows])
            if bool(left.any()):
                return calls[int(left.int().argmax())], spec.name
    return None


def _rows(outputs: Any, calls: list[int]) -> list[Any]:
    """The rows of these calls, in host memory without a copy; a device is faster on all of them together."""
    if len(calls) == len(outputs):
        return [outputs]
    return [outputs[call : call + 1] for call in calls] if outputs.device.type == "cpu" else [outputs[calls]]


def is_poison(rows: Any, dtype: str, itemsize: int) -> Any:
    """Per row of bytes: True if an element still has the exact bits of the poison. An honest NaN seldom has."""
    import torch

    if dtype.startswith("complex"):
        dtype, itemsize = f"float{itemsize * 4}", itemsize // 2
    if itemsize > 1 and not bool(rows.view(getattr(torch, dtype)).amax(1).isnan().any()):
        return rows.new_zeros(1, dtype=torch.bool)  # the poison is NaN, and a search for NaN is much quicker
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (rows.view(kinds[itemsize]) == -1).any(1)
