"""Checks of a finished round: poison and guards of every call, the reference for some of them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.evidence import merge_measures
from aisp_mcp.judge.protections import Protections
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import CheckAnswer
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier.checks import formats, quality
from aisp_mcp.judge.verifier.checks.distribution import Draws
from aisp_mcp.judge.verifier.checks.positions import WrongPositionError, values_at
from aisp_mcp.judge.verifier.checks.tolerance import (
    ADVERSARIAL_SLACK,
    compare,
    compare_steps,
    components,
    is_poison,
    near,
    near_steps,
    same_bits,
)
from aisp_mcp.judge.verifier.inputs.bank import InputBank, RoundInputs
from aisp_mcp.judge.verifier.inputs.files import InputFiles, is_file

SIDES = 3  # of a replicate: worker number n belongs to replicate n // SIDES, whose first one is a baseline
POISON = 0xFF  # NaN in every floating-point format, -1 in every signed integer
RECOMPUTED_SHARE = 0.25  # of the calls that a baseline's worker has computed, too: the verifier computes these itself


class RoundChecker:
    """Compares with what the specification promises. arenas, rounds: the verifier's, by worker. last_only: workers work
    on copies of the inputs, and only of the last call it is seen what they left of them.
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
        self._files, self._quality = files or InputFiles({}), quality.contract(spec)
        self._measures: dict[str, float] = {}  # of the round that is checked now

    def check(self, bank: InputBank, held: Arena, filled: RoundInputs, sample: list[int]) -> CheckAnswer:
        """Poison and guards of every call of the round, all elements of the sampled ones.

        After a worker's first, outputs that hardly differ from the baseline's are accepted by that alone (see near());
        the ratio is the worst of the others.
        """
        damage = next(filter(None, (self._untouched(part, filled.count) for part in held.parts)), None)
        if damage:
            return CheckAnswer(failure=damage[1], code=damage[0], checked=0, ratio=None)
        worst, sample, self._measures = 0.0, sample if self._protections.values else [], {}
        last = filled.count - 1
        if self._last_only and sample and last not in sample:
            changed = self._changed(held, filled.side, last, bank.inputs(filled.at(last), filled.mode))
            if changed:
                return CheckAnswer(failure=f"call {last}: {changed}", code="input_mutated", checked=0, ratio=0.0)
        for done, call in enumerate(sample):
            code, ratio, failure = self._check_call(bank, held, filled, call)
            worst = max(worst, ratio)
            if failure:
                return CheckAnswer(failure=f"call {call}: {failure}", code=code, checked=done + 1, ratio=ratio)
        return CheckAnswer(failure=None, code=None, checked=len(sample), ratio=worst, measures=self._measures)

    def _untouched(self, arena: Arena, count: int) -> tuple[str, str] | None:
        """Guards and poison of every call of the round, whatever is sampled."""
        frames = arena.frames(count)
        for offset, size in arena.layout.frame_guards():
            broken = (frames[:, offset : offset + size] != POISON).any(1)
            if self._protections.outside and bool(broken.any()):
                return "out_of_bounds", f"call {int(broken.int().argmax())}: something was written outside the output"
        if self._spec.tolerance.nan or not self._protections.poison:
            return None
        for spec, offset in arena.layout.frame_outputs():
            if spec.dtype.startswith(("float", "bfloat", "complex")) and spec.nbytes:
                left = is_poison(frames[:, offset : offset + spec.nbytes], spec.dtype, spec.itemsize)
                if bool(left.any()):
                    call = int(left.int().argmax())
                    return "incorrect_unwritten", f"call {call}: an element of {spec.name} was never written"
        return None

    def _check_call(
        self, bank: InputBank, arena: Arena, filled: RoundInputs, call: int
    ) -> tuple[str, float, str | None]:
        outputs, seed = arena.outputs(call), filled.at(call)
        if seed not in bank.hidden and self._near_baseline(bank, arena, filled, call):
            return "", 0.0, None
        inputs = bank.inputs(seed, filled.mode)
        if changed := self._changed(arena, filled.side, call, inputs):
            return "input_mutated", 0.0, changed
        if filled.mode == "plain" and filled.side in bank.compared and bank.near:
            own = bank.hidden.get(seed) or bank.baseline(inputs)
            bank.near = self._all_near(outputs, own)
            if bank.near:
                return "", 0.0, None
            inputs = bank.inputs(seed, filled.mode)  # a baseline may use them up
        base, ref = ([tensor for _, tensor in flatten(output)] for output in bank.both(seed, filled.mode, inputs))
        worst, slack = 0.0, 1.0 if filled.mode == "plain" else ADVERSARIAL_SLACK
        if self._spec.tolerance.stochastic:
            return self._check_draws(bank, zip(outputs, base, ref, strict=True), filled)
        if self._quality or self._spec.tolerance.format:
            return self._check_approximate(bank, (outputs, base, ref), filled, seed)
        for spec, out, own, truth in zip(self._layout.outputs, outputs, base, ref, strict=True):
            ratio, failure = self._compare(bank, spec.name, (out, own, truth), filled, seed, slack)
            worst = max(worst, ratio)
            if failure:
                return "incorrect_output", ratio, f"{spec.name} on {filled.mode} inputs: {failure}"
        if filled.mode == "plain":
            bank.compared.add(filled.side)
        return "", worst, None

    def _compare(
        self, bank: InputBank, name: str, outputs: tuple[Any, Any, Any], filled: RoundInputs, seed: int, slack: float
    ) -> tuple[float, str | None]:
        """compare() of one output; of positions, the values that they point to."""
        tolerance = self._spec.tolerance
        if name in tolerance.per_step:
            return compare_steps(*outputs, tolerance, slack)
        if name not in tolerance.indices:
            rounded = outputs[0].is_floating_point() or outputs[0].is_complex()
            if rounded and filled.mode == "plain" and outputs[2].numel():
                bank.usual[name] = max(bank.usual.get(name, 0.0), float(components(outputs[2]).abs().amax()))
            usual = bank.usual.get(name, 0.0) if filled.mode == "constant" else 0.0
            usual = usual if math.isfinite(usual) else 0.0
            ratio, failure = compare(*outputs, tolerance, slack, usual)
            if failure and rounded and filled.mode == "constant":
                place = [spec.name for spec in self._layout.outputs].index(name)
                return compare(*outputs, tolerance, slack, usual, bank.moved(seed, filled.mode)[place])
            return ratio, failure
        source, dim = tolerance.indices[name]
        values = bank.inputs(seed, filled.mode)[source]
        truth = values.double() if values.is_floating_point() else values
        own, right = values_at(outputs[1], values, dim), values_at(outputs[2], truth, dim)
        try:
            return compare(values_at(outputs[0], values, dim), own, right, tolerance, slack)
        except WrongPositionError as wrong:
            return math.inf, str(wrong)

    def _changed(self, arena: Arena, side: int, call: int, inputs: dict[str, Any]) -> str | None:
        """Message about the first input that a call has changed although it may not."""
        for name, tensor in self._given(arena, side, call).items():
            owned, value = name not in self._spec.in_place and self._protections.outside, inputs[name]
            if owned and is_file(value):
                kept = self._files.is_kept(side, call, name, tensor, value)
            else:
                kept = not owned or same_bits(tensor, value.to(tensor.device))
            if not kept:
                return f"input '{name}' was changed; the contract does not allow it"
        return None

    def _given(self, arena: Arena, side: int, call: int) -> dict[str, Any]:
        """Inputs of a call as its worker left them. arena: its memory on the device, or a copy of that."""
        return {**arena.inputs(call), **self._arenas[side].host_inputs(call)}

    def _near_baseline(self, bank: InputBank, arena: Arena, filled: RoundInputs, call: int) -> bool:
        """Accept outputs near the baseline worker's in a round of the same seed with the same inputs.

        That costs a look at both. Most calls are compared so; of the others, drawn here, and of all that differ at all,
        the verifier computes the outputs itself: it need not believe that nobody reached that worker's memory.
        """
        first = filled.side // SIDES * SIDES
        same = self._rounds.get(first)
        if same is None or same.staged or (same.seed, same.mode) != (filled.seed, "plain"):
            return False
        if call >= same.count or not bank.near:
            return False
        if not {first, filled.side} <= bank.compared or random.random() < RECOMPUTED_SHARE:
            return False
        there = self._arenas[first]
        inputs, given = self._given(arena, filled.side, call), there.inputs(call)
        files = self._layout.files
        if not all(self._files.are_same(filled.side, first, call, name) for name in files):
            return False
        unchanged = inputs.keys() - {*files, *self._spec.in_place}
        return all(same_bits(inputs[name], given[name]) for name in unchanged) and (
            self._all_near(arena.outputs(call), there.outputs(call))
        )

    def _all_near(self, outputs: Iterable[Any], own: Iterable[Any]) -> bool:
        """Return True if all outputs are near() the baseline's."""
        tolerance = self._spec.tolerance
        named = zip(self._layout.outputs, outputs, own, strict=True)
        return all(
            (near_steps if spec.name in tolerance.per_step else near)(out, base, tolerance) for spec, out, base in named
        )

    def _check_approximate(
        self, bank: InputBank, outputs: tuple[Any, Any, Any], filled: RoundInputs, seed: int
    ) -> tuple[str, float, str | None]:
        """The contract of quality or of a format, for outputs, the baseline's and the reference's."""
        if not self._quality:
            return self._check_format(bank, outputs[0], outputs[2], filled, seed)
        names = [spec.name.removeprefix("out.") for spec in self._layout.outputs]
        named = (dict(zip(names, output, strict=True)) for output in outputs)
        ratio, failure, measures = self._quality.check(bank, seed, filled.mode, *named)
        merge_measures(self._measures, measures if filled.mode == "plain" else {})
        return ("incorrect_quality", ratio, f"on {filled.mode} inputs: {failure}") if failure else ("", ratio, None)

    def _check_format(
        self, bank: InputBank, outputs: Iterable[Any], ref: Iterable[Any], filled: RoundInputs, seed: int
    ) -> tuple[str, float, str | None]:
        """Errors in units of a format's own."""
        exact = [one for _, one in flatten(bank.reference.rounded(bank.inputs(seed, filled.mode)))]
        worst = 0.0
        for spec, out, truth, own in zip(self._layout.outputs, outputs, ref, exact, strict=True):
            ratio, failure, measures = formats.compare(out, truth, own, self._spec.tolerance)
            worst = max(worst, ratio)
            if failure:
                return "incorrect_output", ratio, f"{spec.name} on {filled.mode} inputs: {failure}"
            merge_measures(self._measures, measures if filled.mode == "plain" else {})
        return "", worst, None

    def _check_draws(
        self, bank: InputBank, outputs: Iterable[tuple[Any, Any, Any]], filled: RoundInputs
    ) -> tuple[str, float, str | None]:
        draws = bank.draws.setdefault(filled.side, Draws())
        for place, (out, own, mean) in enumerate(outputs):
            failure = draws.failure(place, out, own, mean)
            if failure:
                words = f"{self._layout.outputs[place].name} on {filled.mode} inputs: {failure}"
                return "incorrect_distribution", 0.0, words
        return "", 0.0, None
