"""The verifier's inputs of one replicate and its rounds: secrets that no worker sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aisp_mcp.bench import Host
from aisp_mcp.judge.protocol.draws import near
from aisp_mcp.judge.protocol.draws.rng import MEANINGS, CallRng
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.protocol.shared_memory import Arena
from aisp_mcp.judge.verifier.checks import values
from aisp_mcp.judge.verifier.checks.distribution import DrawTests
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.pieces import pieces
from aisp_mcp.judge.verifier.checks.tolerance import components, distance_type
from aisp_mcp.judge.verifier.inputs import made
from aisp_mcp.judge.verifier.inputs.files import copied_inputs
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator
from aisp_mcp.judge.verifier.walks import MOST_STRAIGHT, Axes, terms

DRAWS = 4  # evaluations with noise at most; chosen (commit 3fa8d429): each costs a float64 reference
# Share by which inputs are off as a whole: the root of a rounding of float32 (2^-23), which is the error of a distance
# by the binomial formula.
STRAIN = 2**-11.5
# Times that share, from which on a result shows cancellation. Chosen (commit 3fa8d429): a
# product of a few factors amplifies it by less.
CANCELS = 16.0
KEPT_BYTES = 32 << 20  # of a round's inputs in host memory that a check need not draw again; chosen (commit 2eeb7964)


def _size(value: Any) -> int:
    return int(getattr(value, "nbytes", KEPT_BYTES + 1))  # files are not kept


def _largest(truth: list[Any], evaluations: Iterable[Iterable[Any]]) -> list[Any]:
    """The largest distance of the evaluations from the truth, element by element; of gigabytes, in float32."""
    largest = [exact.new_zeros(exact.shape, dtype=distance_type(exact)) for exact in truth]
    for output in evaluations:
        for distance, tensor, exact in zip(largest, output, truth, strict=True):
            if distance.is_floating_point():
                for largest_part, part, exact_part in pieces(distance, tensor, exact):
                    apart = (part.to(exact.dtype) - exact_part).abs_().nan_to_num_(0.0, 0.0, 0.0)
                    largest_part.copy_(largest_part.maximum(apart))
    return largest


@dataclass
class RoundInputs:
    """One filled round of one worker: enough to make its inputs again. staged: its inputs and outputs may be outside
    the worker's arena. hidden: by call, the seeds of calls with known answers. drawn: by call, inputs that are kept for
    a check, which uses them up; shared by all workers. in_turns: workers get the same inputs one after another, so
    `drawn` is kept for all of them. kept_bytes: of `drawn`, when the round was filled.
    """

    worker_id: int
    seed: int
    mode: str
    count: int
    staged: bool = False
    hidden: dict[int, int] = field(default_factory=dict)
    battery: bool = False
    drawn: dict[int, dict[str, Any]] = field(default_factory=dict)
    in_turns: bool = False
    kept_bytes: int = 0

    def at(self, call: int) -> int:
        return self.hidden.get(call, self.seed + call)

    def kept(self, call: int, consumed: bool) -> dict[str, Any] | None:
        """The call's inputs if they are kept. consumed: they may be changed."""
        if not self.in_turns:
            return self.drawn.pop(call, None)
        kept = self.drawn.get(call)
        if kept is None or not consumed:
            return kept
        return copied_inputs(kept)

    def forget(self) -> None:
        """Free the memory that large inputs take."""
        if self.in_turns:
            self.drawn.clear()


def given_in_turn(rounds: Iterable[RoundInputs], seed: int, mode: str) -> dict[int, dict[str, Any]]:
    """The inputs of a round that another worker had before, by call. Those of other rounds are freed."""
    found: dict[int, dict[str, Any]] = {}
    for filled in rounds:
        if (filled.seed, filled.mode) == (seed, mode):
            found = filled.drawn
        else:
            filled.forget()
    return found


@dataclass
class InputBank:
    """The secrets of one replicate: its inputs, and the truth for its static tensors.

    There are two banks, so that two replicates can start concurrently. compared: workers whose output on plain inputs
    was compared with the reference. near: True while outputs are so close to the baseline's that they need no
    reference. spread: the standard deviation of the baseline's loss on held-out data, if quality is the contract.
    axes: that a program without torch sums over, once they are known. unseen: whether it is one.
    known: the truth of one call that all three workers compute. ahead: by seed, the baseline's outputs on inputs that
    no worker has seen yet. hidden: those in the current round. host: names of the inputs that stay in host memory on a
    GPU. usual: the largest element of each output on plain inputs, and on those of the battery. left: the right content
    of the known call's inputs afterwards. drawn_as: the seed in place of one on whose unusual inputs the baseline has
    no answer.
    """

    device: str
    reference: ReferenceEvaluator
    compared: set[int] = field(default_factory=set)
    near: bool = True
    known: tuple[tuple[int, str], tuple[Any, Any]] | None = None
    ahead: dict[int, list[Any]] = field(default_factory=dict)
    hidden: dict[int, list[Any]] = field(default_factory=dict)
    draws: dict[int, DrawTests] = field(default_factory=dict)
    host: set[str] = field(default_factory=set)
    left: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    spread: float | None = None
    axes: Axes | None = None
    unseen: bool | None = None
    usual: dict[tuple[str, bool], float] = field(default_factory=dict)
    drawn_as: Callable[[int, str], int] | None = None

    def inputs(self, seed: int, mode: str) -> dict[str, Any]:
        """The inputs of a seed, which may be one of near.seed_of()."""
        return self.drawn(self.redrawn(seed, mode), mode)

    def redrawn(self, seed: int, mode: str) -> int:
        """The seed whose inputs stand for those of this one."""
        return self.drawn_as(seed, mode) if self.drawn_as and mode != "plain" else seed

    def drawn(self, seed: int, mode: str) -> dict[str, Any]:
        """The inputs of exactly this seed."""
        spec, (plain, number) = self.reference.spec, near.parts_of(seed)
        alike, changed = kind_of(spec) is Kind.QUALITY, None
        if number is not None:
            drawn = CallRng(self.device, plain, mode, alike=alike)
            spec.inputs(drawn)
            changed = (number % drawn.draws, number // drawn.draws) if drawn.draws else None
        inputs = spec.inputs(CallRng(self.device, plain, mode, alike=alike, changed=changed))
        self.host |= {name for name, value in inputs.items() if isinstance(value, Host) and self.device == "cuda"}
        return {name: value.tensor.cpu() if isinstance(value, Host) else value for name, value in inputs.items()}

    def round_inputs(self, filled: RoundInputs, call: int, sample: Sequence[int]) -> dict[str, Any]:
        """Inputs of a call of the round that is being filled; kept if there is room and the call may be compared."""
        drawn = filled.drawn
        if call in drawn:  # the worker before this one got them
            return drawn[call]
        inputs = self.inputs(filled.at(call), filled.mode)
        size = sum(map(_size, inputs.values()))
        may_be_compared = self.device == "cpu" and (not sample or call in sample)
        if filled.in_turns or (may_be_compared and filled.kept_bytes + size <= KEPT_BYTES):
            drawn[call] = inputs
            filled.kept_bytes += size
        return inputs

    def both(self, seed: int, mode: str, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return (baseline's output, reference) of a call with these inputs, which are consumed."""
        if (known := self.truth(seed, mode)) is None:
            self.known = None  # before more memory is allocated
            known = self.remember(seed, mode, self.reference.both(inputs))
            self.left = self.reference.left
        return known

    def remember(self, seed: int, mode: str, outputs: tuple[Any, Any]) -> tuple[Any, Any]:
        """Keep the (baseline's output, reference) of a call, since its other workers may be compared next."""
        self.known = (seed, mode), outputs
        return outputs

    def truth(self, seed: int, mode: str) -> tuple[Any, Any] | None:
        """Return the result of both() for this call if it is known."""
        return self.known[1] if self.known is not None and self.known[0] == (seed, mode) else None

    def rounding(self, seed: int, mode: str, eps: float, most_terms: float) -> Iterator[list[Any]]:
        """The distances by which different rounding moves each element of a call's outputs, for a few noisy
        evaluations of the reference (see evaluation.py).
        """
        for draw in range(DRAWS):
            jittered = partial(self.reference.jittered, eps=eps, most_terms=most_terms, seed=seed + draw)
            yield self._distances(seed, mode, jittered)

    def sums_unseen(self, seed: int) -> bool:
        """Return True if the program sums over axes of its inputs and torch does not see how (see walks.py). seed: of
        inputs that are tried.
        """
        if self.axes is None:
            self.axes = self.reference.summed_axes(self.inputs(seed, "plain")) if self.is_unseen(seed) else {}
        return any(self.axes.values()) or bool(made.SEEN)

    def is_unseen(self, seed: int) -> bool:
        """Return True if torch does not see the program compute. seed: of inputs that are tried."""
        if self.unseen is None:
            self.unseen = not self.reference.is_seen(self.inputs(seed, "plain"))
        return self.unseen

    def walked(self, seed: int, mode: str, eps: float, draws: Sequence[int], *, straight: bool = False) -> list[Any]:
        """The distances by which the roundings of these sums move each element of a call's outputs. draws: their
        numbers. straight: of one sign.
        """
        walked = partial(self.reference.walked, axes=self.axes or {}, eps=eps, straight=straight)
        return self._distances(seed, mode, *(partial(walked, seed=seed + draw) for draw in draws))

    def straight(self, seed: int, mode: str, eps: float) -> list[Any]:
        """The same for roundings of one sign. Where the output hardly depends on how its inputs are scaled, as a
        normalised one does, the sums in it may still be off by as much.
        """
        count = terms(self.inputs(seed, mode), self.axes or {})
        eps = min(eps, MOST_STRAIGHT / count)
        moved = self.walked(seed, mode, eps, (0,), straight=True)
        exact = self._reference(seed, mode)
        return [
            far.maximum(value.abs().to(far.dtype) * (count * eps / 4)) if far.is_floating_point() else far
            for far, value in zip(moved, exact, strict=True)
        ]

    def scattered(self, seed: int, mode: str, eps: float) -> list[Any]:
        """The distances by which the roundings of these sums, of both signs, move outputs that hardly depend on how
        inputs are scaled, as an entropy does: the walks leave these where they are.
        """
        count = terms(self.inputs(seed, mode), self.axes or {})
        return [
            exact.abs() * (eps * math.sqrt(count)) if exact.is_floating_point() else exact
            for exact in self._reference(seed, mode)
        ]

    def row_peaks(self, seed: int, mode: str) -> list[Any]:
        """The largest size in the row of each element of a call's outputs; 0 where there is none that is finite."""
        sizes = [exact.abs().nan_to_num(0.0, 0.0, 0.0) for exact in self._reference(seed, mode)]
        return [size.amax(-1, keepdim=True).expand_as(size) if size.ndim and size.numel() else size for size in sizes]

    def in_order(self, seed: int, mode: str) -> list[Any]:
        """Errors of the elements of a call's outputs if sums add one term after the other in float32."""
        return self._distances(seed, mode, self.reference.in_order)

    def in_tf32(self, seed: int, mode: str, narrowed: Callable[[Any], Any]) -> list[Any]:
        """Errors of these elements if convolutions get their operands in TF32 (see evaluation.py)."""
        return self._distances(seed, mode, partial(self.reference.in_tf32, narrowed=narrowed))

    def cancelled(self, seed: int, mode: str) -> list[Any]:
        """Errors of these elements for inputs that are off as a whole by the root of a rounding, where cancellation
        amplifies it by more than CANCELS; zero elsewhere.
        """
        strained = (partial(self.reference.strained, share=share) for share in (STRAIN, -STRAIN))
        apart = self._distances(seed, mode, *strained)
        return [
            far.where(far > CANCELS * STRAIN * exact.abs(), 0.0) if far.is_floating_point() else far
            for far, exact in zip(apart, self._reference(seed, mode), strict=True)
        ]

    def _reference(self, seed: int, mode: str) -> list[Any]:
        outputs = self.truth(seed, mode) or self.both(seed, mode, self.inputs(seed, mode))
        return [*self.numbers(outputs[1], outputs[0]).values()]

    def _distances(self, seed: int, mode: str, *evaluations: Callable[[dict[str, Any]], Any]) -> list[Any]:
        """The largest distances of these evaluations from the reference, by output and element. Each consumes inputs of
        its own.
        """
        truth = self._reference(seed, mode)
        assert self.known is not None
        own = self.known[1][0]
        outputs = (self.numbers(evaluated(self.inputs(seed, mode)), own).values() for evaluated in evaluations)
        return _largest(truth, outputs)

    def numbers(self, output: Any, own: Any) -> dict[str, Any]:
        """Real tensors of the numbers in an output, by name; of Python values, of the floats, by their places in the
        baseline's own output.
        """
        is_value = kind_of(self.reference.spec) is Kind.VALUES
        named = values.numbers(output, own) if is_value else dict(flatten(output))
        return {name: components(tensor) for name, tensor in named.items()}

    def baseline(self, inputs: dict[str, Any]) -> list[Any]:
        """The baseline's outputs on these inputs, which are consumed."""
        return [tensor for _, tensor in flatten(self.reference.once(inputs))]

    def look_ahead(self, seed: int) -> None:
        """Compute the baseline's outputs on plain inputs of that seed."""
        self.ahead[seed] = [tensor.clone() for tensor in self.baseline(self.inputs(seed, "plain"))]

    def begin(
        self,
        counts: dict[str, int],
        seed: int,
        mode: str,
        sample: Sequence[int],
        staged: bool = False,
        drawn: dict[int, dict[str, Any]] | None = None,
    ) -> list[RoundInputs]:
        """Begin the next round of these workers, all on the same inputs. sample: the calls to compare; they get inputs
        with known answers as long as there are any. drawn: inputs that another worker had before, if workers get the
        same ones in turn.
        """
        self.known, calls = None, sample if mode == "plain" else ()
        self.hidden = {known: self.ahead.pop(known) for known in [*self.ahead][: len(calls)]}
        seeds = dict(zip(calls, self.hidden, strict=False))
        in_turns, kept = drawn is not None, {} if drawn is None else drawn
        return [
            RoundInputs(int(worker_id), seed, mode, count, staged, seeds, drawn=kept, in_turns=in_turns)
            for worker_id, count in counts.items()
        ]


@dataclass(frozen=True)
class CheckedCall:
    """A call of a finished round that is compared.

    arena: the memory of the round's outputs, or a copy of it. plain_calls: of its worker on plain inputs so far,
    including this one. has_leeway: the battery has decided already that the program is correct (see
    ElementsContract).
    """

    bank: InputBank
    arena: Arena
    round: RoundInputs
    number: int
    plain_calls: int = 0
    has_leeway: bool = False

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
    def on(self) -> str:
        """The kind of its inputs, for a sentence: `on exact inputs (small integers or fractions, or sorted)`."""
        if near.parts_of(self.seed)[1] is not None:
            return "on inputs that differ from those of the call before in a part of one of them"
        return f"on {self.mode} inputs{f' ({MEANINGS[self.mode]})' if self.mode in MEANINGS else ''}"

    @property
    def outputs(self) -> list[Any]:
        """The outputs that the worker stored."""
        return self.arena.outputs(self.number)

    def inputs(self) -> dict[str, Any]:
        """The inputs, as they were before the call."""
        consumed = bool(self.bank.reference.spec.in_place)
        return self.round.kept(self.number, consumed) or self.bank.inputs(self.seed, self.mode)
