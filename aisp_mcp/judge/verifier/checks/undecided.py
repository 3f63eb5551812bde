"""Elements of an output that ties or roundings decide, among values which the function computes itself.

The nearest of several points, the best of several scores and what lies within a radius depend on comparisons of
computed values. Where two of them are equal, or differ by roundings, several answers are right, and the baseline's is
one of them. It shows which: its answer changes there once its inputs are moved by roundings, or once the points are
given in another order.

- Roundings move equal values alike and leave small integers and halves where they are, so ties among the inputs
  themselves, and between an input and a number in the program, stay ties: `x > 0` in place of `x >= 0` is as wrong as
  before.
- An axis can be permuted if that permutes the baseline's output on plain inputs, leaves it as it is, or names the same
  elements by their new positions. Then the order of equal elements is all that a permutation changes on other inputs.
  Odd ones are tried: an even one of its columns leaves a cross product as it is.
  Static tensors are permuted with the inputs: the experts of a router are rows of its weights.

Floats that torch sees computed have the errors of other orders of operations, so for these only permutations count, in
float64: there, no sum depends on its order, but a choice between equal scores does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import EXACT_PARTS
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.verifier.checks import values
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.tolerance import components
from aisp_mcp.judge.verifier.inputs import made
from aisp_mcp.judge.verifier.inputs.bank import CheckedCall, InputBank
from aisp_mcp.judge.verifier.walks import is_real

# Runs of the baseline on moved inputs at most. After the first of them, which permute no plain inputs, an output is
# wrong if more than a few of its elements differ and hardly any of these is undecided. Chosen: all runs miss a tie of
# two once in 4 billion times.
DRAWS, FIRST, FEW, HARDLY = 32, 6, 0.05, 0.9
MOST_ELEMENTS = 1 << 24  # of an output: all runs are kept. Chosen.
# Roundings by which inputs are moved, in turn, and times more on fresh inputs, which do not overrule the battery. On
# other than plain ones, the last is the root of eps, which |a|² + |b|² - 2ab loses where points nearly coincide.
# Chosen: on plain inputs still 30 times less than float16 or TF32 move a float32. Share of a value at most in narrow
# types.
ROUNDINGS, FRESH, NARROW = (4.0, 16.0, 64.0), 4.0, 2.0**-12
# Integers up to this size stay. Chosen: larger than those of any kind of inputs that have ties.
SMALL = 1 << 12
# Share of the elements that differ between plain inputs, which may differ after a permutation.
MISPLACED = 0.02
# Share of the elements that may be left undecided on plain inputs, of several calls: more, and a wrong answer would
# hardly be seen. Chosen; 0.02 were needed by the chains of decisions of farthest points in float32.
MOST_UNDECIDED, CALLS = 0.1, 3
COMPARABLE = 0.25  # share of its difference from the baseline by which a float must be undecided; chosen
AXES = 12  # groups of axes that are tried at most
# Plain inputs on which each is tried at most, those that must agree, and those that may not: some have equal rows, and
# ties that a permutation decides anew. Chosen.
SEEDS, AGREEING, TIED = 8, 3, 2
# Pairs of equal positions that chance would give, from which on a baseline that has none gives each position once.
CHANCE, TRIES = 8.0, 32
SAME = 2.0**-10  # share by which floats may differ in answers that are right as a whole

Effect = tuple[int | None, bool]


@dataclass(frozen=True)
class Symmetry:
    """Axes of inputs, of one length, that may be permuted together. effects: on each output, the axis along which its
    elements move, or None, and whether they are positions in these axes.
    """

    size: int
    axes: tuple[tuple[str, int], ...]
    effects: tuple[Effect, ...]


class Undecided:
    """Elements of the outputs of one specification that ties and roundings leave undecided."""

    def __init__(self, bank: InputBank, seed: int) -> None:
        """seed: of inputs that are tried."""
        self._is_value, self._seed = kind_of(bank.reference.spec) is Kind.VALUES, seed
        self._symmetries: list[Symmetry] | None = None
        self._at: tuple[int, str, bool] | None = None
        self._drawn: list[list[Any] | None] = []  # of that call
        self._distinct: dict[int, bool] = {}

    def elements(self, call: CheckedCall, index: int, out: Any, base: Any, ref: Any) -> Any:
        """The elements of an output that differ from the baseline's and that it leaves undecided; None if it decides
        one of them. ref: in float64.
        """
        if out.numel() > MOST_ELEMENTS or (out.is_floating_point() and out.itemsize == 1):  # which has no arithmetic
            return None
        wrong = apart(out, base)
        if not bool(wrong.any()):
            return None
        is_float = out.is_floating_point() or out.is_complex()
        is_moved = not is_float or call.bank.is_unseen(call.seed)
        if not is_moved and not self._symmetries_of(call.bank):
            return None
        unstable = wrong & _is_as_far(ref, base, out)  # what is right in float64 is right
        for number, drawn in enumerate(self._draws(call, is_moved=is_moved)):
            left = int((wrong & ~unstable).sum())
            if not left or (
                number == FIRST and call.is_plain and left > max(HARDLY * int(wrong.sum()), FEW * out.numel())
            ):
                break
            is_far = is_moved and not call.is_plain and number % len(ROUNDINGS) == len(ROUNDINGS) - 1
            if is_far and is_float:
                continue  # its inputs were moved by more than the roundings of a float explain
            if drawn is not None:
                unstable |= wrong & _is_as_far(drawn[index], base, out)
        left = wrong & ~unstable
        if bool(left.any()) and (call.is_plain or not _is_beside(left, wrong, unstable)):
            return None
        if self._is_impossible(call.bank, index, out, base):
            return None
        return wrong

    def as_a_whole(self, call: CheckedCall, index: int, is_same: Callable[[Any], bool], own: Any) -> bool:
        """Return True for an answer that is right only as a whole, if the baseline gives it once its inputs are moved;
        or, on other than plain inputs, if half of its answers are others then. own: the baseline's usual answer.
        """
        changed = [drawn[index] for drawn in self._draws(call, FIRST) if drawn and not self.is_same(drawn[index], own)]
        if not changed:
            return False
        given = [drawn[index] for drawn in self._draws(call) if drawn]
        changed = [answer for answer in given if not self.is_same(answer, own)]
        return any(map(is_same, changed)) or (not call.is_plain and 2 * len(changed) >= len(given))

    def _draws(self, call: CheckedCall, count: int = DRAWS, is_moved: bool = True) -> Iterator[list[Any] | None]:
        """The baseline's outputs, with their elements where they belong; None where it raises. is_moved: its inputs are
        moved by roundings, and not only permuted.
        """
        if self._at != (at := (call.seed, call.mode, is_moved)):
            self._at, self._drawn = at, []
        for number in range(count):
            if number == len(self._drawn):
                self._drawn.append(self._draw(call, number, is_moved))
            yield self._drawn[number]

    def _draw(self, call: CheckedCall, number: int, is_moved: bool) -> list[Any] | None:
        import torch

        generator = torch.Generator().manual_seed(call.seed * DRAWS + number)
        turn = number % len(ROUNDINGS)
        is_last = turn == len(ROUNDINGS) - 1
        count = ROUNDINGS[turn] * (FRESH if call.has_leeway else 1.0)
        inputs, reference = _given(call.bank, call.seed, call.mode), call.bank.reference
        kinds = {name: torch.finfo(value.dtype).eps for name, value in inputs.items() if is_real(value)}
        symmetries = self._symmetries_of(call.bank) if number >= FIRST or not call.is_plain else []
        orders = [torch.randperm(symmetry.size, generator=generator) for symmetry in symmetries]

        def change(given: dict[str, Any]) -> None:
            for name, value in given.items() if is_moved else ():
                eps = kinds.get(name, torch.finfo(torch.float64).eps)
                most = max(count, eps**-0.5) if is_last and not call.is_plain else count
                given[name] = moved(name, value, most, eps, generator)
            for symmetry, order in zip(symmetries, orders, strict=True):
                _permute(given, symmetry.axes, order)

        try:
            # In float64, where it is not so exact that a candidate's roundings are none of its own.
            if number % 2 or not is_moved:
                output = reference.changed(inputs, change)
            else:
                change(inputs)
                output = reference.baseline(inputs)
        except Exception:  # moved inputs may be none that the baseline takes
            return None
        outputs = [tensor for _, tensor in flatten(output)]
        for symmetry, order in reversed([*zip(symmetries, orders, strict=True)]):
            outputs = [
                self._undone(output, effect, order) for output, effect in zip(outputs, symmetry.effects, strict=True)
            ]
        return outputs

    def _symmetries_of(self, bank: InputBank) -> list[Symmetry]:
        if self._symmetries is None:
            self._symmetries = list(self._found(bank, self._seed))
        return self._symmetries

    def _found(self, bank: InputBank, seed: int) -> Iterator[Symmetry]:
        """The groups of axes whose permutation does one thing alone to each plain output. Inputs on which it may have
        done several, as where all points are equal, tell nothing.
        """
        import torch

        generator = torch.Generator().manual_seed(seed)
        usual = [self._outputs(bank, _given(bank, seed + more, "plain")) for more in range(SEEDS + 1)]
        for size, axes in _groups(_given(bank, seed, "plain"))[:AXES]:
            known, agreeing, others = list[set[Effect]](), 0, 0
            for more in range(SEEDS):
                order, inputs = torch.randperm(size, generator=generator), _given(bank, seed + more, "plain")
                order = order[order]  # an even one, and with two exchanged an odd one: these change every sign
                order[:2] = order[:2].flip(0)
                _permute(inputs, axes, order)
                try:
                    outputs = self._outputs(bank, inputs)
                except Exception:
                    break
                found = zip(outputs, usual[more], usual[more + 1], strict=True)
                effects = [self._effects(*tensors, order) for tensors in found]
                both = [one & other for one, other in zip(known or effects, effects, strict=True)]
                if all(both):  # where all is one value, everything seems to have been done
                    tells = any(len(one) == 1 for one in effects)
                    known, agreeing = both, agreeing + tells
                else:
                    others += 1
                is_one = agreeing >= AGREEING and all(len(each) == 1 for each in known)
                if is_one:
                    yield Symmetry(size, axes, tuple(next(iter(each)) for each in known))
                if is_one or others > TIED:
                    break

    def _outputs(self, bank: InputBank, inputs: dict[str, Any]) -> list[Any]:
        return [tensor for _, tensor in flatten(bank.reference.baseline(inputs))]

    def _effects(self, out: Any, usual: Any, other: Any, order: Any) -> set[Effect]:
        """The effects that the permutation may have had on an output."""
        most = MISPLACED * self._share_apart(other, usual)
        moving = [None] if self._is_value else [None, *(a for a in range(out.ndim) if out.shape[a] == len(order))]
        kinds = (False, True) if self._is_value or _may_be_positions(out) else (False,)
        effects = [(axis, is_position) for is_position in kinds for axis in moving]
        return {each for each in effects if self._share_apart(self._undone(out, each, order), usual) <= most}

    def _share_apart(self, one: Any, other: Any) -> float:
        if self._is_value:
            return float(not self.is_same(one, other))
        return float(apart(one, other).double().mean()) if other.numel() else 0.0

    def is_same(self, one: Any, other: Any) -> bool:
        """Return True for answers that differ by no more than roundings."""
        if not self._is_value:
            return not bool(apart(one, other).any())
        return values.difference(_value(other), _value(one), SAME, SAME) is None

    def _undone(self, out: Any, effect: Effect, order: Any) -> Any:
        axis, is_position = effect
        if self._is_value:
            return _relabelled_value(_value(out), order) if is_position else out
        order = order.to(out.device)
        if axis is not None:
            out = out.index_select(axis, order.argsort())
        return _relabelled(out, order) if is_position else out

    def _is_impossible(self, bank: InputBank, index: int, out: Any, base: Any) -> bool:
        """Return True for positions outside the inputs, or that occur twice where the baseline's never do."""
        sizes = [symmetry.size for symmetry in self._symmetries_of(bank) if symmetry.effects[index][1]]
        if not sizes:
            return False
        if int(out.min()) < min(int(base.min()), 0) or int(out.max()) > max(int(base.max()), max(sizes) - 1):
            return True
        if not out.ndim or not _repeats(out) or _repeats(base):
            return False
        if index not in self._distinct:
            self._distinct[index] = self._are_distinct(bank, index, max(sizes))
        return self._distinct[index]

    def _are_distinct(self, bank: InputBank, index: int, size: int) -> bool:
        """Return True if no row of the baseline's positions has one twice, though chance would give some."""
        expected = 0.0
        for more in range(TRIES):
            found = self._outputs(bank, bank.inputs(self._seed + more, "plain"))[index]
            if _repeats(found):
                return False
            width = found.shape[-1]
            expected += found.numel() * (width - 1) / 2 / size
            if expected > CHANCE:
                return True
        return False


def unstable(share: float) -> BenchmarkError:
    """That too much is left undecided on plain inputs to tell a wrong answer."""
    return BenchmarkError(
        "UNSTABLE",
        f"Rounding decides the baseline's output: {100 * share:.0f} % of it changes once its inputs are moved by a few "
        "roundings, and a candidate's differs there.",
        "Return what such decisions change little, such as the distances or the score, or let --check decide which "
        "answers are right.",
    )


def _is_as_far(drawn: Any, base: Any, out: Any) -> Any:
    """The elements by which one of the baseline's answers differs from its usual one by more than roundings, and by at
    least a share of what an output differs by.
    """
    drawn = drawn.to(base.dtype)
    far = apart(drawn, base)
    if base.is_floating_point() or base.is_complex():
        far &= ~((drawn - base).abs() < COMPARABLE * (out - base).abs())
    return far


def _is_beside(left: Any, wrong: Any, unstable: Any) -> bool:
    """Return True if these are fewer than half of the wrong elements, each in a row with others that are unstable: of a
    hundred equal ones, draws seldom change each.
    """
    rows = unstable.any(-1, keepdim=True) if unstable.ndim else unstable
    return bool(2 * left.sum() < wrong.sum()) and not bool((left & ~rows).any())


def apart(one: Any, other: Any) -> Any:
    """The elements by which two outputs differ by more than roundings: by a share of the root of eps of their row."""
    import torch

    if not (other.is_floating_point() or other.is_complex()):
        return one != other
    eps = torch.finfo(other.dtype).eps
    shape, (one, other) = other.shape, (components(each).double() for each in (one, other))
    size = other.abs().nan_to_num(0.0, 0.0, 0.0)
    size = size.amax(-1, keepdim=True) if size.ndim and size.numel() else size
    far = ((one - other).abs() > math.sqrt(eps) * size) | (one.isfinite() != other.isfinite())
    return far if far.shape == shape else far.unflatten(-1, (-1, 2)).any(-1).reshape(shape)


def moved(name: str, value: Any, count: float, eps: float, generator: Any) -> Any:
    """The input with its floats off by up to so many roundings of eps, equal ones by the same share, and small integers
    and exact parts of them as they are.
    """
    import torch

    if name in made.SEEN:
        return made.walked(value, count * eps, int(torch.randint(1 << 30, (), generator=generator)))
    if not is_real(value):
        return value
    wide = components(value).double()
    key = int(torch.randint(1 << 62, (), generator=generator)) | 1
    bits = wide.abs().view(torch.int64) * key
    share = ((bits ^ (bits >> 29)) * key >> 11).double() * 2.0**-52
    off = wide * (1.0 + share * min(count * eps, max(eps, NARROW)))
    parts = wide * max(EXACT_PARTS)
    off = off.where((parts != parts.round()) | (wide.abs() > SMALL), wide)
    if not value.is_complex():
        return off.to(value.dtype)
    return torch.view_as_complex(off.unflatten(-1, (-1, 2)).contiguous()).reshape(value.shape).to(value.dtype)


def _given(bank: InputBank, seed: int, mode: str) -> dict[str, Any]:
    """The inputs of a call, then the static tensors."""
    return bank.inputs(seed, mode) | bank.reference.params


def _groups(inputs: dict[str, Any]) -> list[tuple[int, tuple[tuple[str, int], ...]]]:
    """Axes of one length: all of them together, and each alone."""
    by_size: dict[int, list[tuple[str, int]]] = {}
    for name, value in inputs.items():
        if hasattr(value, "ndim") and name not in made.SEEN:
            for axis in range(value.ndim):
                by_size.setdefault(value.shape[axis], []).append((name, axis))
    groups = [(size, tuple(axes)) for size, axes in by_size.items() if size > 1]
    return groups + [(size, (axis,)) for size, axes in groups if len(axes) > 1 for axis in axes]


def _permute(inputs: dict[str, Any], axes: Sequence[tuple[str, int]], order: Any) -> None:
    for name, axis in axes:
        inputs[name] = inputs[name].index_select(axis, order.to(inputs[name].device))


def _may_be_positions(out: Any) -> bool:
    return bool(out.itemsize >= 4 and out.numel() and not (out.is_floating_point() or out.is_complex()))


def _relabelled(out: Any, order: Any) -> Any:
    """Positions before the permutation, of positions after it; numbers that are none stay."""
    is_known = (out >= 0) & (out < len(order))
    return order[out.long().clamp(0, len(order) - 1)].to(out.dtype).where(is_known, out)


def _repeats(positions: Any) -> bool:
    return bool((positions.sort(-1).values.diff(dim=-1) == 0).any())


def _value(answer: Any) -> Any:
    """The Python value of an answer in a frame, or one that is read already."""
    return values.read(answer) if type(answer).__module__ == "torch" else answer


def _relabelled_value(value: Any, order: Any) -> Any:
    """The same for all integers in a value."""
    import torch

    if type(value) is int:
        return int(order[value]) if 0 <= value < len(order) else value
    if type(value).__module__ == "numpy" and value.dtype.kind == "i":
        return _relabelled(torch.from_numpy(value.copy()), order).numpy()
    if type(value) in (list, tuple, set):
        return type(value)(_relabelled_value(item, order) for item in value)
    return value
