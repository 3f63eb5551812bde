"""One checker for each kind of contract, chosen once when a specification is opened.

round_checker.py does what all kinds have in common: guards, poison, changed inputs, and which calls are compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aisp_mcp.bench import Answers, Benchmark
from aisp_mcp.bench.training import TrainingBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import CANCELLED, LARGE, TIES, TINY, UNDECIDED, merge_measures
from aisp_mcp.judge.protocol import values as written
from aisp_mcp.judge.protocol.draws.rng import OFFSET, SIZES
from aisp_mcp.judge.protocol.layout import Layout, TensorSpec
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.verifier.checks import formats, precision, undecided, values
from aisp_mcp.judge.verifier.checks.distribution import DrawTests
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.other_orders import EDGE, OtherOrders
from aisp_mcp.judge.verifier.checks.quality import QualityCheck
from aisp_mcp.judge.verifier.checks.tolerance import (
    compare,
    compare_steps,
    components,
    eps_of,
    exceeds_average,
    is_compared_by_error,
    is_narrow_and_small,
    near,
    near_steps,
    relative_error,
    same_bits,
)
from aisp_mcp.judge.verifier.checks.undecided import Undecided
from aisp_mcp.judge.verifier.inputs.bank import CheckedCall

# Calls on plain inputs whose average error is that of a narrower type, from which on an output is refused if they are
# also more than half of all. On an H100, 3 of 120 calls of the library's attention in bfloat16 were that imprecise, and
# all calls of 8-bit results (commit 5be86483).
IMPRECISE_CALLS = 4
# Share of an output's size, or of its usual one, from which an error on inputs of some thousands is that of another
# function: an overflow, or a branch that is missing. Chosen: far more than large terms that cancel leave.
GROSS = 0.125
# Share of the digits that a baseline's output must have far from 0. Chosen: a variance in two passes is off by some
# eps, and one as a difference of squares has lost four fifths.
DIGITS_LEFT = 0.5
# Share of counts that may have another place on tiny inputs. Chosen: two neighbours of eight bins.
MOVED = 0.25
# Calls on plain inputs from which on outputs of few elements are judged by their average error, the average rounding as
# a share of eps, and times that or the baseline's error. Chosen: two roundings are 1.6 times apart, and samples of an
# eighth of a batch ten times.
POOLED_CALLS, AVERAGE_ROUNDING, POOLED_SPREAD = 8, 0.25, 5.0

# Calls on plain inputs of which the precision of an accepted answer is told. Chosen: to read an answer of many lists
# takes as long as its check.
MEASURED_CALLS = 3

Tensors = Sequence[Any]
Triple = tuple[Any, Any, Any]  # the same output of candidate, baseline and reference
Comparison = tuple[float, str | None]  # error in units of the contract, failure


@dataclass(frozen=True)
class CallCheck:
    """Outcome of the checks of one call.

    ratio: its error in units of the contract. failure: None if it passed. measures: to be reported. edge: (share of the
    limit, description) of the error nearest to the limit, if it is at the edge of the tolerance.
    """

    ratio: float = 0.0
    code: str | None = None
    failure: str | None = None
    measures: dict[str, float] = field(default_factory=dict)
    edge: tuple[float, str] | None = None


@dataclass(frozen=True)
class ExpectedOutputs:
    """Expected outputs of a call: those of the baseline and of the reference on the same inputs.

    left: the inputs as the call left them, None where they are not seen. inputs: as they were before it, where
    computing the others has not used them up.
    """

    baseline: Tensors
    reference: Tensors
    left: dict[str, Any] | None
    inputs: dict[str, Any] | None = None


class Contract:
    """How the outputs of a call are judged by one kind of contract. orders: errors that valid orders of operations
    explain. needs_reference: they are judged by the float64 reference, too.
    """

    needs_reference = True

    def __init__(self, spec: Benchmark, layout: Layout, orders: OtherOrders) -> None:
        self._spec, self._outputs, self._orders = spec, layout.outputs, orders

    def near(self, call: CheckedCall, baseline: Tensors) -> bool:  # noqa: ARG002 - only some kinds can tell
        """Return True if a call's outputs are so near the baseline's that they pass whatever the reference is."""
        return False

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        """Judge all outputs of a call."""
        raise NotImplementedError


class DistributionContract(Contract):
    """Random outputs: their distribution and independence, beside the baseline's."""

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        draws = call.bank.draws.setdefault(call.round.worker_id, DrawTests())
        outputs = zip(self._outputs, call.outputs, expected.baseline, expected.reference, strict=True)
        for index, (spec, out, own, expectation) in enumerate(outputs):
            if failure := draws.failure(index, out, own, expectation):
                return CallCheck(0.0, "incorrect_distribution", f"{spec.name} {call.on}: {failure}")
        return CallCheck()


class QualityContract(Contract):
    """Approximate training: the weights and losses that it gives."""

    def __init__(self, spec: Benchmark, layout: Layout, orders: OtherOrders) -> None:
        super().__init__(spec, layout, orders)
        assert isinstance(spec, TrainingBenchmark)
        assert spec.quality is not None
        self._check = QualityCheck(spec, spec.quality)

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        names = [spec.name.removeprefix("out.") for spec in self._outputs]
        outputs = call.outputs, expected.baseline, expected.reference
        named = (dict(zip(names, tensors, strict=True)) for tensors in outputs)
        ratio, failure, measures = self._check.check(call.bank, call.seed, call.mode, *named)
        if failure:
            return CallCheck(ratio, "incorrect_quality", f"{call.on}: {failure}")
        return CallCheck(ratio, measures=measures if call.is_plain else {})


class FormatContract(Contract):
    """Operands in a low-precision format: errors in units of the one that this rounding causes."""

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        rounded = [tensor for _, tensor in flatten(call.bank.reference.rounded(call.inputs()))]
        worst, reported = 0.0, dict[str, float]()
        for spec, out, truth, exact in zip(self._outputs, call.outputs, expected.reference, rounded, strict=True):
            ratio, failure, measures = formats.compare(out, truth, exact, self._spec.tolerance)
            worst = max(worst, ratio)
            if failure:
                return CallCheck(ratio, "incorrect_output", f"{spec.name} {call.on}: {failure}")
            merge_measures(reported, measures if call.is_plain else {})
        return CallCheck(worst, measures=reported)


@dataclass(frozen=True)
class _OutputRule:
    """The rule for one output. near: as Contract.near()."""

    name: str
    near: Callable[[Any, Any], bool]
    compare: Callable[[CheckedCall, Triple], Comparison]


class ElementsContract(Contract):
    """Every element is compared with the reference. Each output has its own rule: steps, positions, equality, a given
    approximation, or the baseline's own error as the unit.
    """

    def __init__(self, spec: Benchmark, layout: Layout, orders: OtherOrders) -> None:
        super().__init__(spec, layout, orders)
        self._rules = [self._rule(index, output) for index, output in enumerate(layout.outputs)]
        self._imprecise = Counter[tuple[int, int]]()  # calls on plain inputs, by worker and output
        # Sums of the squares of (errors, values) of small outputs, by whose they are, worker and output, then by seed.
        self._apart: defaultdict[tuple[str, int, int], dict[int, tuple[float, float]]] = defaultdict(dict)
        self._ties = set[str]()  # outputs whose positions pointed to other elements of the same values
        self._large = set[str]()  # outputs that were wrong or imprecise on large inputs
        self._tiny = set[str]()  # outputs whose counts had moved on tiny inputs
        self._cancelled = dict[str, float]()  # largest error on inputs far from 0, as a share of the output
        self._undecided: Undecided | None = None
        # Largest share of an output that its baseline leaves undecided, by its name and the kind of inputs, and shares
        # of the calls on plain inputs, by worker and output.
        self._left_undecided = dict[str, float]()
        self._shares: defaultdict[tuple[int, int], list[float]] = defaultdict(list)

    def _rule(self, index: int, output: TensorSpec) -> _OutputRule:
        tolerance, is_near = self._spec.tolerance, near
        rule: Callable[[int, CheckedCall, Triple], Comparison]
        is_equal = tolerance.exact or not output.dtype.startswith(("float", "bfloat", "complex"))
        if output.name in tolerance.per_step:
            rule, is_near = self._compare_steps, near_steps
        elif output.name in tolerance.indices:
            rule = self._compare_positions
        elif is_equal:
            rule = self._compare_equal
        else:
            rule = self._compare_errors if tolerance.approximate is None else self._compare_approximately
        return _OutputRule(output.name, partial(is_near, tolerance=tolerance), partial(rule, index))

    def near(self, call: CheckedCall, baseline: Tensors) -> bool:
        pairs = list(zip(self._rules, call.outputs, baseline, strict=True))
        is_near = all(rule.near(out, base) for rule, out, base in pairs)
        return is_near and not any(self._imprecise_small(call, at, *pair[1:]) for at, pair in enumerate(pairs))

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        worst, edges = 0.0, list[tuple[float, str]]()
        outputs = zip(self._rules, call.outputs, expected.baseline, expected.reference, strict=True)
        for index, (rule, out, base, ref) in enumerate(outputs):
            tensors = out, base, ref
            ratio, failure = rule.compare(call, tensors)
            is_large = call.mode in SIZES and not (failure and self._is_gross(call, rule.name, out, ref))
            is_named = is_large or call.mode == OFFSET
            if failure and not is_named and (decided := self._without_undecided(call, index, tensors)):
                tensors = decided
                ratio, failure = rule.compare(call, tensors)
            worst = max(worst, ratio)
            failure = self._beyond_edge(call, rule.name, ratio, failure, edges)
            failure = failure or self._imprecise_calls(call, index, tensors)
            if failure and call.mode == OFFSET:
                self._name_cancelled(rule.name, out, base, ref)
            elif failure and is_large:
                self._large.add(rule.name)
            elif failure and call.mode == "tiny" and _are_moved(out, base):
                self._tiny.add(rule.name)
            elif failure:
                name = rule.name.removesuffix(".hash")  # of what no tensor holds
                return CallCheck(ratio, "incorrect_output", f"{name} {call.on}: {failure}")
        if expected.left is not None and (failed := self._check_left(call, expected.left, edges)):
            return failed
        if call.is_plain:
            call.bank.compared.add(call.round.worker_id)
        return CallCheck(worst, edge=max(edges, default=None), measures=self._noted())

    def _name_cancelled(self, name: str, out: Any, base: Any, ref: Any) -> None:
        """Note that an output is wrong on inputs far from 0, unless the baseline's, too, has lost many digits there."""
        is_float = out.is_floating_point() or out.is_complex()
        if not is_float or relative_error(base, ref) <= eps_of(base) ** DIGITS_LEFT:
            self._cancelled[name] = max(self._cancelled.get(name, 0.0), relative_error(out, ref))

    def _noted(self) -> dict[str, float]:
        """Measures that are no errors, by their names."""
        noted = {TIES: self._ties, LARGE: self._large, TINY: self._tiny}
        marks = {name + end: 1.0 for end, names in noted.items() for name in names}
        shares = {UNDECIDED: self._left_undecided, CANCELLED: self._cancelled}
        return marks | {name + end: share for end, named in shares.items() for name, share in named.items()}

    def _without_undecided(self, call: CheckedCall, index: int, tensors: Triple) -> Triple | None:
        """The tensors with the baseline's elements where it leaves undecided what the output's are; None if it decides
        one that differs. Raises BenchmarkError UNSTABLE.
        """
        out, base, ref = tensors
        tolerance, name = self._spec.tolerance, self._outputs[index].name
        if name in (*tolerance.per_step, *tolerance.indices) or not out.numel():
            return None
        is_float = out.is_floating_point() or out.is_complex()
        is_seen = is_float and not call.bank.is_unseen(call.seed)
        if is_float and (out.numel() == 1 or (is_seen and call.is_plain)):  # other orders explain these
            return None
        if name.endswith(".hash"):
            own, is_same = self._draws_of(call), partial(same_bits, out)
            elements = out != base if own.as_a_whole(call, index, is_same, base) else None
        else:
            elements = self._draws_of(call).elements(call, index, out, base, ref)
        if elements is None:
            return None
        self._note_undecided(call, index, f"{name} ", float(elements.double().mean()))
        return base.where(elements, out), base, ref

    def _draws_of(self, call: CheckedCall) -> Undecided:
        if self._undecided is None:
            self._undecided = Undecided(call.bank, call.seed)
        return self._undecided

    def _note_undecided(self, call: CheckedCall, index: int, name: str, share: float) -> None:
        """Note a share of an output. Raises BenchmarkError UNSTABLE if it is too much on plain inputs."""
        if call.is_plain:
            shares = self._shares[call.round.worker_id, index]
            shares.append(share)
            average = sum(shares) / max(call.plain_calls, len(shares))
            if len(shares) >= undecided.CALLS and average > undecided.MOST_UNDECIDED:
                raise undecided.unstable(average)
        at = f"{name}on {call.mode} inputs"
        self._left_undecided[at] = max(self._left_undecided.get(at, 0.0), share)

    def _compare_steps(self, index: int, call: CheckedCall, tensors: Triple) -> Comparison:
        return compare_steps(*tensors, self._spec.tolerance, self._slack(call, index, tensors[0]))

    def _compare_positions(self, index: int, call: CheckedCall, tensors: Triple) -> Comparison:
        tolerance = self._spec.tolerance
        source, dim = tolerance.indices[self._outputs[index].name]
        given = call.inputs()[source]
        wide = given.double() if given.is_floating_point() else given
        baseline, reference = values_at(tensors[1], given, dim), values_at(tensors[2], wide, dim)
        try:
            out = values_at(tensors[0], given, dim)
        except WrongPositionError as wrong:
            return math.inf, str(wrong)
        return compare(out, baseline, reference, tolerance, self._slack(call, index, tensors[0]))

    def _compare_equal(self, index: int, call: CheckedCall, tensors: Triple) -> Comparison:
        found = compare(*tensors, self._spec.tolerance, self._slack(call, index, tensors[0]))
        if found[1] and are_ties(tensors[0], tensors[1], call.inputs().values()):
            self._ties.add(self._outputs[index].name)
            return 0.0, None
        if found[1] and self._outputs[index].name.endswith(".hash"):
            structure = "the structure of the answer (a list is no tuple)"
            return found[0], f"texts, integers or {structure} differ from the baseline's"
        if found[1] and not call.is_plain and tensors[0].numel() > 1 and may_be_positions(tensors[0]):
            return found[0], f"{found[1]}; if ties allow several answers, let --check decide"
        return found

    def _compare_approximately(self, index: int, call: CheckedCall, tensors: Triple) -> Comparison:
        return self._comparison(index, call, tensors)()

    def _compare_errors(self, index: int, call: CheckedCall, tensors: Triple, name: str | None = None) -> Comparison:
        """Compare errors with the baseline's own, and those near the limit with those of other orders, too. Far from 0,
        these explain a variance as a difference of squares, which is named. name: of the output, if it is not the
        contract's.
        """
        compared, limit = self._comparison(index, call, tensors, name), self._spec.tolerance.error_ratio
        found = compared()
        if found[1] and self._is_saturated(call, index, tensors[1]):
            usual = self._size(call, self._outputs[index].name if name is None else name)
            found = compare(*tensors, self._spec.tolerance, self._slack(call, index, tensors[0]), usual)
        if found[1] and call.mode == OFFSET:
            self._name_cancelled(name or self._outputs[index].name, *tensors)
        is_finite = found[0] < math.inf or bool(components(tensors[0]).isfinite().all())  # of a truth that is 0
        is_near_limit = limit / EDGE < found[0] and is_finite
        if is_near_limit and self._orders.may_explain(call.bank, index, found[0], tensors[1], tensors[2]):
            slack = self._slack(call, index, tensors[0])
            return self._orders.explained(call, index, tensors[1], slack, found, compared)
        return found

    def _comparison(
        self, index: int, call: CheckedCall, tensors: Triple, name: str | None = None
    ) -> Callable[..., Comparison]:
        """compare() of one output; its argument is an allowed error of each element."""
        name = self._outputs[index].name if name is None else name
        usual = self._usual(call, name, tensors[2]) if tensors[2].numel() else 0.0
        return partial(compare, *tensors, self._spec.tolerance, self._slack(call, index, tensors[0]), usual)

    def _slack(self, call: CheckedCall, index: int, out: Any) -> float:
        return self._orders.slack(call.mode, index, out.dtype)

    def _usual(self, call: CheckedCall, name: str, reference: Any) -> float:
        """Size of elements whose rounding is forgiven in an output of constant inputs, which cancel, and of large ones,
        which saturate; 0 for other inputs. In programs that torch does not see, walks show what cancels.

        It is that of plain calls; in the battery only of its own, so that its answer does not depend on fresh inputs.
        """
        known, key = call.bank.usual, (name, call.round.battery)
        if call.is_plain:
            known[key] = max(known.get(key, 0.0), float(components(reference).abs().amax()))
        if call.mode not in SIZES and (call.mode != "constant" or call.bank.is_unseen(call.seed)):
            return 0.0
        return self._size(call, name)

    def _size(self, call: CheckedCall, name: str) -> float:
        usual = max(call.bank.usual.get(key, 0.0) for key in ((name, call.round.battery), (name, True)))
        return usual if math.isfinite(usual) else 0.0

    def _is_saturated(self, call: CheckedCall, index: int, base: Any) -> bool:
        """Return True if equal numbers give zeros that stay exactly 0 when the inputs are moved by roundings, in a
        program that torch does not see. Its own roundings make them: 1 + erf(-9) is 0, and erfc(9) is not.
        """
        if call.mode != "constant" or bool(base.any()) or not call.bank.is_unseen(call.seed):
            return False
        moved = next(call.bank.rounding(call.seed, call.mode, eps_of(base), math.inf))
        return not bool(moved[index].any())

    def _is_gross(self, call: CheckedCall, name: str, out: Any, ref: Any) -> bool:
        """Return True if an output on inputs of thousands is off by more than rounding leaves. On larger ones none is:
        honest programs multiply until a product overflows (three of 206 in validation/run_honest.py).
        """
        if call.mode != "thousands":
            return False
        if not (out.is_floating_point() or out.is_complex()):
            return bool((out != ref).any())
        apart = float((components(out).double() - components(ref)).abs().max())
        size = float(components(ref).abs().max())
        return not apart <= GROSS * max(size, self._usual(call, name, ref))

    def _beyond_edge(
        self, call: CheckedCall, name: str, ratio: float, failure: str | None, edges: list[tuple[float, str]]
    ) -> str | None:
        """Return the failure if it counts, and note errors at the edge of the tolerance.

        The battery applies the limit exactly. Fresh inputs do not overrule the battery: they refuse only errors beyond
        EDGE times the limit.
        """
        tolerance = self._spec.tolerance
        share = ratio / (tolerance.error_ratio if tolerance.approximate is None else 1.0)
        if 1.0 / EDGE < share <= EDGE:
            words = f"{name} {call.on}, seed {call.seed}: {share:.2g} times what the contract allows"
            edges.append((share, words))
        if failure and share <= EDGE:
            failure = f"{failure}; at the edge of the tolerance"
        return failure if share > (EDGE if call.has_leeway else 1.0) else None

    def _imprecise_calls(self, call: CheckedCall, index: int, tensors: Triple) -> str | None:
        """A failure if the average error is that of a narrower type in several calls, and in most of them."""
        tolerance = self._spec.tolerance
        if not call.is_plain or tolerance.exact or tolerance.approximate is not None:
            return None
        if failure := self._imprecise_small(call, index, *tensors):
            return failure
        if (most := exceeds_average(self._orders.is_coarse(index), *tensors)) is None:
            return None
        key = call.round.worker_id, index
        self._imprecise[key] += 1
        count = self._imprecise[key]
        if count < IMPRECISE_CALLS or 2 * count <= call.plain_calls:
            return None
        return (
            f"in {count} of {call.plain_calls} calls the average error is more than {most:g} times the baseline's own"
        )

    def _imprecise_small(self, call: CheckedCall, index: int, out: Any, base: Any, ref: Any = None) -> str | None:
        """A failure if the average distance from the baseline over several calls is that of a sample. One call says
        little where the output has few elements.
        """
        if not (call.is_plain and is_compared_by_error(self._spec) and is_narrow_and_small(out)):
            return None
        apart, own = (self._apart[kind, call.round.worker_id, index] for kind in ("candidate", "baseline"))
        apart[call.seed] = _squares(out, base)
        if ref is not None:
            own[call.seed] = _squares(base, ref)
        average, most = _pooled(apart), POOLED_SPREAD * max(_pooled(own), AVERAGE_ROUNDING * eps_of(out))
        if len(apart) < POOLED_CALLS or average <= most:
            return None
        return f"over {len(apart)} calls the average error is {average:.3g} of the output (allowed {most:.3g})"

    def _check_left(self, call: CheckedCall, left: dict[str, Any], edges: list[tuple[float, str]]) -> CallCheck | None:
        """Compare the contents that the call left in inputs which are part of the answer."""
        for name, (baseline, truth) in call.bank.left.items():
            out, slack = left[name].to(baseline.device), self._orders.slack(call.mode, -1, baseline.dtype)
            ratio, failure = compare(out, baseline, truth, self._spec.tolerance, slack)
            if failure := self._beyond_edge(call, f"input '{name}'", ratio, failure, edges):
                message = f"what is left in input '{name}' {call.on}: {failure}"
                return CallCheck(
                    ratio, "incorrect_output", f"{message}. If it is not a result, declare it in `scratch`"
                )
        return None


class ValuesContract(ElementsContract):
    """Any Python values, which a frame of bytes holds: right for the user's checker or tolerance, or else equal to the
    baseline's but for floats, whose errors are compared as those of tensors are.
    """

    def __init__(self, spec: Benchmark, layout: Layout, orders: OtherOrders) -> None:
        super().__init__(spec, layout, orders)
        assert spec.answers is not None
        self._check = None if spec.answers == Answers() else values.checked(spec.answers)
        self.needs_reference = self._check is None
        self._measured = Counter[int]()  # calls on plain inputs whose precision is known, by worker

    def near(self, call: CheckedCall, baseline: Tensors) -> bool:
        return all(same_bits(out, own) for out, own in zip(call.outputs, baseline, strict=True))

    def compare(self, call: CheckedCall, expected: ExpectedOutputs) -> CallCheck:
        own = values.read(expected.baseline[0])
        try:
            found = values.read(call.outputs[0])
        except ValueError as error:
            return self._refused(call, f"the answer cannot be read: {error}")
        judge = self._checked if self._check else self._compared
        outcome = judge(call, own, found, expected)
        if outcome.failure and not self._check and self._is_undecided(call, own, found):
            self._note_undecided(call, 0, "", 1.0)
            outcome = CallCheck(measures=self._noted())
        if call.is_plain and not outcome.failure:
            call.bank.compared.add(call.round.worker_id)
        return outcome

    def _is_undecided(self, call: CheckedCall, own: Any, found: Any) -> bool:
        is_same = partial(self._draws_of(call).is_same, found)
        return self._draws_of(call).as_a_whole(call, 0, is_same, own)

    def _refused(self, call: CheckedCall, message: str, ratio: float = math.inf) -> CallCheck:
        if f"{written.AFTERWARDS}']" in message:
            message = f"{message}. If that is not a result, let the baseline work on a copy"
        return CallCheck(ratio, "incorrect_output", f"{call.on}: {message}")

    def _checked(self, call: CheckedCall, own: Any, found: Any, expected: ExpectedOutputs) -> CallCheck:
        assert self._check is not None
        inputs = expected.inputs or call.inputs()
        try:
            failure = self._check(values.given(self._spec, inputs), own, found)
        except BenchmarkError as error:  # the checker raised, which it did for no answer of the baseline
            failure = error.message
        if failure:
            return self._refused(call, failure)
        if not call.is_plain or self._measured[call.round.worker_id] >= MEASURED_CALLS:
            return CallCheck()
        self._measured[call.round.worker_id] += 1
        return CallCheck(measures=precision.measures(own, found))

    def _compared(self, call: CheckedCall, own: Any, found: Any, expected: ExpectedOutputs) -> CallCheck:
        places = values.floats(own, found)
        if isinstance(places, str):
            return self._refused(call, places)
        truths = values.numbers(expected.reference[0], expected.baseline[0])
        indices = {at: index for index, at in enumerate(truths)}
        worst, edges = 0.0, list[tuple[float, str]]()
        for at, place in places.items():
            if at not in truths:  # an integer of the baseline, or a float among its integers
                if message := values.apart(place):
                    return self._refused(call, message)
                continue
            out, base = (values.as_tensor(array) for array in (place.found, place.expected))
            ratio, failure = self._compare_errors(indices[at], call, (out.to(base.dtype), base, truths[at]), at)
            worst = max(worst, ratio)
            if (failure := self._beyond_edge(call, at, ratio, failure, edges)) and call.mode != OFFSET:
                return self._refused(call, f"{at}: {failure}" if at else failure, ratio)
        return CallCheck(worst, edge=max(edges, default=None), measures=self._noted())


def _are_moved(out: Any, base: Any) -> bool:
    """Return True if a few counts have another place: of a histogram, values near 0 are rounded to an edge."""
    if str(out.dtype) not in ("torch.int32", "torch.int64"):
        return False
    return int(out.sum()) == int(base.sum()) and int((out != base).sum()) <= MOVED * out.numel()


CHECKERS: dict[Kind, type[Contract]] = {
    Kind.DISTRIBUTION: DistributionContract,
    Kind.QUALITY: QualityContract,
    Kind.FORMAT: FormatContract,
    Kind.VALUES: ValuesContract,
    Kind.ELEMENTS: ElementsContract,
}


def contract_of(spec: Benchmark, layout: Layout, orders: OtherOrders) -> Contract:
    """The checker of a specification's contract."""
    return CHECKERS[kind_of(spec)](spec, layout, orders)


def _squares(out: Any, truth: Any) -> tuple[float, float]:
    apart = (out.double() - truth).nan_to_num(0.0, 0.0, 0.0)
    return float(apart.square().sum()), float(truth.double().nan_to_num(0.0, 0.0, 0.0).square().sum())


def _pooled(squares: Mapping[int, tuple[float, float]]) -> float:
    """The root-mean-square error of several calls as a share of their root mean square."""
    errors, sizes = (sum(parts) for parts in zip(*squares.values(), strict=True)) if squares else (0.0, 1.0)
    return math.sqrt(errors / max(sizes, 1e-300))


class WrongPositionError(Exception):
    """A position is out of range, or occurs twice where each may occur once."""


def are_ties(out: Any, base: Any, inputs: Iterable[Any]) -> bool:
    """Return True if both outputs are positions in one of the inputs and point to the same values there: several orders
    of equal elements are right.
    """
    return may_be_positions(out) and any(
        _point_to_the_same(out, base, source, dim) for source in inputs for dim in _dims(base, source)
    )


def may_be_positions(out: Any) -> bool:
    """Return True for integers that are wider than hashes, masks and pixels."""
    return bool(out.itemsize >= 4 and out.numel() and not (out.is_floating_point() or out.is_complex()))


def _dims(positions: Any, source: Any) -> Iterator[int | None]:
    """The dimensions along which these can be positions in the source; None for the flat source."""
    if isinstance(source, str) or not source.ndim:
        return
    shape, held = list(positions.shape), list(source.shape)
    for dim in range(source.ndim):
        rest = held[:dim] + held[dim + 1 :]
        if shape == rest or (len(shape) == len(held) and shape[:dim] + shape[dim + 1 :] == rest):
            yield dim
    if len(shape) <= 1 and source.ndim > 1:
        yield None


def _point_to_the_same(out: Any, base: Any, source: Any, dim: int | None) -> bool:
    try:
        return same_bits(values_at(out, source, dim), values_at(base, source, dim))
    except WrongPositionError:
        return False


def values_at(positions: Any, source: Any, dim: int | None) -> Any:
    """The elements of the source, of one slice along dim for each slice of positions. Raises WrongPositionError.

    positions: as torch.topk, sort or argmax return them, with or without dim. dim None: source is taken as flat.
    """
    if dim is None:
        source, positions, dim = source.flatten(), positions.flatten(), 0
    if positions.ndim == source.ndim - 1:
        positions = positions.unsqueeze(dim)
    positions = positions.long()
    if not positions.numel():
        return source.new_empty(0)
    if bool((positions < 0).any()) or bool((positions >= source.shape[dim]).any()):
        raise WrongPositionError("a position is outside the input")
    ordered = positions.sort(dim).values
    if bool((ordered.diff(dim=dim) == 0).any()):
        raise WrongPositionError("a position occurs twice")
    return source.gather(dim, positions)
