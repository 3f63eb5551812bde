"""Checks of a finished round: poison and guards of every call, and comparison of some calls with the reference."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.evidence import merge_measures
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import CheckAnswer
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.roles import baseline_of
from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier.checks import damage, formats, quality
from aisp_mcp.judge.verifier.checks.distribution import Draws
from aisp_mcp.judge.verifier.checks.other_orders import EDGE, OtherOrders
from aisp_mcp.judge.verifier.checks.positions import WrongPositionError, values_at
from aisp_mcp.judge.verifier.checks.tolerance import (
    compare,
    compare_steps,
    components,
    exceeds_average,
    near,
    near_steps,
    same_bits,
)
from aisp_mcp.judge.verifier.inputs.bank import InputBank, RoundInputs
from aisp_mcp.judge.verifier.inputs.files import InputFiles, is_file

IMPRECISE_CALLS = 4  # so many imprecise calls fail an output if they are also more than half of all calls
RECOMPUTED_SHARE = 0.25  # of the calls that a baseline's worker computed too: the verifier recomputes them


@dataclass(frozen=True)
class CallCheck:
    """Outcome of the checks of one call. ratio: its error in units of the contract; failure: None if it passed."""

    ratio: float = 0.0
    code: str | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Call:
    """A call of a finished round. arena: the memory of the round's outputs, or a copy of it."""

    bank: InputBank
    arena: Arena
    round: RoundInputs
    number: int

    @property
    def seed(self) -> int:
        return self.round.at(self.number)

    @property
    def mode(self) -> str:
        return self.round.mode

    @property
    def is_plain(self) -> bool:
        return self.mode == "plain"

    @property
    def outputs(self) -> list[Any]:
        """The outputs that the worker stored."""
        return self.arena.outputs(self.number)

    def inputs(self) -> dict[str, Any]:
        """The inputs, as they were before the call."""
        consumed = bool(self.bank.reference.spec.in_place)
        return self.round.kept(self.number, consumed) or self.bank.inputs(self.seed, self.mode)


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
        self._measures: dict[str, float] = {}  # of the round being checked
        self.orders = OtherOrders([output.dtype for output in layout.outputs], spec.tolerance.error_ratio)
        self._is_decided = False  # True once the battery has been checked
        self._calls = Counter[Any]()  # on plain inputs: of each worker, and the imprecise ones of its outputs
        self._edge: tuple[float, str] | None = None  # the largest share of the limit in this round, if near the limit

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
        if damage := self._damage(arena, round_inputs.count, stored):
            return CheckAnswer(failure=damage.failure, code=damage.code, checked=0, ratio=None)
        worst, sample, self._measures = 0.0, sample if self._protections.values else [], {}
        self._edge, self._is_decided = None, self._is_decided or round_inputs.battery
        last = Call(bank, arena, round_inputs, round_inputs.count - 1)
        if self._last_only and sample and last.number not in sample and (message := self._changed(last, last.inputs())):
            return CheckAnswer(failure=f"call {last.number}: {message}", code="input_mutated", checked=0, ratio=0.0)
        for done, number in enumerate(sample):
            outcome = self._check_call(Call(bank, arena, round_inputs, number))
            worst = max(worst, outcome.ratio)
            if outcome.failure:
                failure = f"call {number}: {outcome.failure}"
                return CheckAnswer(failure=failure, code=outcome.code, checked=done + 1, ratio=outcome.ratio)
        bank.known = None if self._layout.tight else bank.known  # it leaves no memory for the next round
        answer = CheckAnswer(failure=None, code=None, checked=len(sample), ratio=worst, measures=self._measures)
        if self._edge:
            answer["edge"] = self._edge
        return answer

    @cached_property
    def _quality(self) -> quality.QualityCheck | None:
        return quality.contract(self._spec)

    def _damage(self, arena: Arena, count: int, stored: list[int] | None) -> CallCheck | None:
        """Check the guards of every call of the round, and the poison of all stored ones, sampled or not."""
        calls = [*range(count)] if stored is None else stored
        is_poisoned = self._protections.poison and not self._spec.tolerance.nan
        for part in arena.parts:
            if self._protections.outside and (call := damage.broken_guard(part, count)) is not None:
                return CallCheck(0.0, "out_of_bounds", f"call {call}: something was written outside the output")
            if is_poisoned and (found := damage.left_poison(part, count, calls)):
                message = f"call {found[0]}: an element of {found[1]} was never written"
                return CallCheck(0.0, "incorrect_unwritten", message)
        return None

    def _check_call(self, call: Call) -> CallCheck:
        bank = call.bank
        self._calls[call.round.worker_id] += call.is_plain
        if call.seed not in bank.hidden and not bank.left and self._near_baseline(call):
            return CallCheck()
        inputs = call.inputs()
        if message := self._changed(call, inputs):
            return CallCheck(0.0, "input_mutated", message)
        if self._may_be_near(call):
            if self._all_near(call.outputs, bank.hidden.get(call.seed) or bank.baseline(inputs)):
                return CallCheck()
            bank.near = bank.near and not call.is_plain
            inputs = call.inputs()  # a baseline may use them up
        call.round.forget()  # the reference needs the memory
        baseline, reference = (
            [tensor for _, tensor in flatten(output)] for output in bank.both(call.seed, call.mode, inputs)
        )
        del inputs  # large ones leave too little memory for the errors
        return self._compare_all(call, baseline, reference)

    def _may_be_near(self, call: Call) -> bool:
        """Return True if an output near the baseline's needs no reference: none does once its worker's output on plain
        inputs was compared with it. Further plain outputs of a program that was not near are hardly near either.
        """
        bank = call.bank
        if bank.left or call.round.worker_id not in bank.compared or bank.truth(call.seed, call.mode):
            return False
        return bank.near or not call.is_plain

    def _compare_all(self, call: Call, baseline: list[Any], reference: list[Any]) -> CallCheck:
        """Compare all outputs as the specification's contract says."""
        if self._spec.tolerance.stochastic:
            return self._check_draws(call, zip(call.outputs, baseline, reference, strict=True))
        if self._quality:
            return self._check_quality(call, (call.outputs, baseline, reference))
        if self._spec.tolerance.format:
            return self._check_format(call, reference)
        worst = 0.0
        outputs = zip(self._layout.outputs, call.outputs, baseline, reference, strict=True)
        for index, (spec, *tensors) in enumerate(outputs):
            ratio, failure = self._compare(call, spec.name, (tensors[0], tensors[1], tensors[2]))
            worst = max(worst, ratio)
            failure = self._beyond_edge(call, spec.name, ratio, failure)
            failure = failure or self._imprecise_calls(call, index, tensors)
            if failure:
                return CallCheck(ratio, "incorrect_output", f"{spec.name} on {call.mode} inputs: {failure}")
        if failed := self._check_left(call):
            return failed
        if call.is_plain:
            call.bank.compared.add(call.round.worker_id)
        return CallCheck(worst)

    def _imprecise_calls(self, call: Call, index: int, tensors: list[Any]) -> str | None:
        """A failure if the average error is that of a narrower type in several calls, and in most of them."""
        tolerance = self._spec.tolerance
        if not call.is_plain or tolerance.exact or tolerance.approximate is not None:
            return None
        if (most := exceeds_average(self.orders.is_coarse(index), *tensors)) is None:
            return None
        self._calls[call.round.worker_id, index] += 1
        count, plain = self._calls[call.round.worker_id, index], self._calls[call.round.worker_id]
        if count < IMPRECISE_CALLS or 2 * count <= plain:
            return None
        return f"in {count} of {plain} calls the average error is more than {most:g} times the baseline's own"

    def _check_left(self, call: Call) -> CallCheck | None:
        """Compare the contents that the call left in inputs which are part of the answer."""
        if self._last_only and call.number != call.round.count - 1:
            return None
        left = self._inputs_left(call)
        for name, (baseline, truth) in call.bank.left.items():
            out, slack = left[name].to(baseline.device), self.orders.slack(call.mode, -1, baseline.dtype)
            ratio, failure = compare(out, baseline, truth, self._spec.tolerance, slack)
            if failure := self._beyond_edge(call, f"input '{name}'", ratio, failure):
                message = f"what is left in input '{name}' on {call.mode} inputs: {failure}"
                return CallCheck(
                    ratio, "incorrect_output", f"{message}. If it is not a result, declare it in `scratch`"
                )
        return None

    def _compare(self, call: Call, name: str, outputs: tuple[Any, Any, Any]) -> tuple[float, str | None]:
        """Compare one output; if it holds positions, compare the values they point to."""
        tolerance, index = self._spec.tolerance, [spec.name for spec in self._layout.outputs].index(name)
        slack = self.orders.slack(call.mode, index, outputs[0].dtype)
        if name in tolerance.per_step:
            return compare_steps(*outputs, tolerance, slack)
        if name in tolerance.indices:
            return self._compare_positions(call, name, outputs, slack)
        is_rounded = outputs[0].is_floating_point() or outputs[0].is_complex()
        usual = self._usual(call, name, outputs[2]) if is_rounded and outputs[2].numel() else 0.0
        ratio, failure = compare(*outputs, tolerance, slack, usual)
        has_edge, limit = is_rounded and tolerance.approximate is None and not tolerance.exact, tolerance.error_ratio
        is_large = has_edge and limit / EDGE < ratio < math.inf
        if is_large and self.orders.may_explain(call.bank, index, ratio, *outputs[1:]):
            allowing = partial(compare, *outputs, tolerance, slack, usual)
            return self.orders.explained(call, index, slack, (ratio, failure), allowing)
        return ratio, failure

    def _usual(self, call: Call, name: str, reference: Any) -> float:
        """Size of elements whose rounding is forgiven in an output of constant inputs; 0 for other inputs.

        It is that of plain calls; in the battery only of its own, so that its answer does not depend on fresh inputs.
        """
        known, key = call.bank.usual, (name, call.round.battery)
        if call.is_plain:
            known[key] = max(known.get(key, 0.0), float(components(reference).abs().amax()))
        if call.mode != "constant":
            return 0.0
        usual = max(known.get(key, 0.0), known.get((name, True), 0.0))
        return usual if math.isfinite(usual) else 0.0

    def _beyond_edge(self, call: Call, name: str, ratio: float, failure: str | None) -> str | None:
        """Return the failure if it counts, and note errors at the edge of the tolerance.

        The battery applies the limit exactly. Fresh inputs do not overrule the battery: they refuse only errors beyond
        EDGE times the limit.
        """
        tolerance = self._spec.tolerance
        share = ratio / (tolerance.error_ratio if tolerance.approximate is None else 1.0)
        if 1.0 / EDGE < share <= EDGE:
            words = f"{name} on {call.mode} inputs, seed {call.seed}: {share:.2g} times what the contract allows"
            self._edge = max(self._edge or (0.0, ""), (share, words))
        if failure and share <= EDGE:
            failure = f"{failure}; at the edge of the tolerance"
        has_leeway = self._is_decided and not call.round.battery
        return failure if share > (EDGE if has_leeway else 1.0) else None

    def _compare_positions(
        self, call: Call, name: str, outputs: tuple[Any, Any, Any], slack: float
    ) -> tuple[float, str | None]:
        tolerance = self._spec.tolerance
        source, dim = tolerance.indices[name]
        values = call.inputs()[source]
        wide = values.double() if values.is_floating_point() else values
        baseline, reference = values_at(outputs[1], values, dim), values_at(outputs[2], wide, dim)
        try:
            return compare(values_at(outputs[0], values, dim), baseline, reference, tolerance, slack)
        except WrongPositionError as wrong:
            return math.inf, str(wrong)

    def _changed(self, call: Call, inputs: dict[str, Any]) -> str | None:
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

    def _inputs_left(self, call: Call) -> dict[str, Any]:
        """Inputs of a call as its worker left them."""
        arena = self._arenas[call.round.worker_id]
        if self._layout.tight:  # of which only the outputs were copied
            return arena.inputs(call.number)
        return {**call.arena.inputs(call.number), **arena.host_inputs(call.number)}

    def _near_baseline(self, call: Call) -> bool:
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
            self._all_near(call.outputs, arena.outputs(call.number))
        )

    def _all_near(self, outputs: Iterable[Any], baseline: Iterable[Any]) -> bool:
        """Return True if all outputs are near() the baseline's."""
        tolerance = self._spec.tolerance
        named = zip(self._layout.outputs, outputs, baseline, strict=True)
        return all(
            (near_steps if spec.name in tolerance.per_step else near)(out, base, tolerance) for spec, out, base in named
        )

    def _check_quality(self, call: Call, outputs: tuple[list[Any], list[Any], list[Any]]) -> CallCheck:
        """Check the quality contract of the target. outputs: of the worker, the baseline and the reference."""
        assert self._quality is not None
        names = [spec.name.removeprefix("out.") for spec in self._layout.outputs]
        named = (dict(zip(names, tensors, strict=True)) for tensors in outputs)
        ratio, failure, measures = self._quality.check(call.bank, call.seed, call.mode, *named)
        merge_measures(self._measures, measures if call.is_plain else {})
        if failure:
            return CallCheck(ratio, "incorrect_quality", f"on {call.mode} inputs: {failure}")
        return CallCheck(ratio)

    def _check_format(self, call: Call, reference: Iterable[Any]) -> CallCheck:
        """Errors in units of the format's own rounding error."""
        rounded = [tensor for _, tensor in flatten(call.bank.reference.rounded(call.inputs()))]
        worst = 0.0
        for spec, out, truth, exact in zip(self._layout.outputs, call.outputs, reference, rounded, strict=True):
            ratio, failure, measures = formats.compare(out, truth, exact, self._spec.tolerance)
            worst = max(worst, ratio)
            if failure:
                return CallCheck(ratio, "incorrect_output", f"{spec.name} on {call.mode} inputs: {failure}")
            merge_measures(self._measures, measures if call.is_plain else {})
        return CallCheck(worst)

    def _check_draws(self, call: Call, outputs: Iterable[tuple[Any, Any, Any]]) -> CallCheck:
        draws = call.bank.draws.setdefault(call.round.worker_id, Draws())
        for index, (out, baseline, expectation) in enumerate(outputs):
            if failure := draws.failure(index, out, baseline, expectation):
                name = self._layout.outputs[index].name
                return CallCheck(0.0, "incorrect_distribution", f"{name} on {call.mode} inputs: {failure}")
        return CallCheck()
